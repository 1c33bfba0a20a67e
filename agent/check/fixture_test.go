package check

import (
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	testVLAN   = 100
	gatewayMAC = "00:1c:73:00:00:99"
)

var (
	nodeIP  = netip.MustParseAddr("192.0.2.2")
	gateway = netip.MustParseAddr("192.0.2.1")
	second  = netip.MustParseAddr("203.0.113.1")
)

// expectedNode is what the controller publishes for the node of goodNode.
func expectedNode() Expected {
	return Expected{Published: true, Network: contract.NodeNetwork{
		ServerID: "0123456789abcdef01234567", NetworkID: "6104105e6b7c9a0012345678", VLAN: testVLAN, Member: true,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{
			{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{CIDR: netip.MustParsePrefix("203.0.113.0/29"), Gateway: netip.MustParseAddr("203.0.113.1")},
		},
		Announcer: contract.AnnouncerKubeVIP,
	}}
}

// goodNode is a healthy server: a bond of two, a private VLAN, the VLAN of the public network, a pod network.
func goodNode() Snapshot {
	up := func(l Link) Link {
		l.Up, l.LowerUp, l.OperState = true, true, "up"
		return l
	}
	return Snapshot{
		Hostname: "worker-1",
		Links: []Link{
			up(Link{Index: 1, Name: "lo", Type: "device", MTU: 65536}),
			up(Link{Index: 2, Name: "eno1", Type: "device", MAC: "02:00:00:00:00:01", MTU: 9000, Master: 4}),
			up(Link{Index: 3, Name: "eno2", Type: "device", MAC: "02:00:00:00:00:01", MTU: 9000, Master: 4}),
			up(Link{Index: 4, Name: "bond0", Type: "bond", MAC: "02:00:00:00:00:01", MTU: 9000,
				Bond: &Bond{Mode: "802.3ad", PartnerMAC: "00:1c:73:00:00:01"}}),
			up(Link{Index: 5, Name: "bond0.11", Type: "vlan", MAC: "02:00:00:00:00:01", MTU: 9000, Parent: 4,
				VLAN: &VLAN{ID: 11, Protocol: "802.1q"}}),
			up(Link{Index: 6, Name: "bond0.100", Type: "vlan", MAC: "02:00:00:00:00:01", MTU: 1500, Parent: 4,
				VLAN: &VLAN{ID: 100, Protocol: "802.1q"}}),
			up(Link{Index: 7, Name: "cni0", Type: "bridge", MAC: "02:00:00:00:00:07", MTU: 1500}),
		},
		Addresses: []Address{
			{LinkIndex: 1, Prefix: netip.MustParsePrefix("127.0.0.1/8")},
			{LinkIndex: 5, Prefix: netip.MustParsePrefix("10.0.0.11/24")},
			{LinkIndex: 6, Prefix: netip.MustParsePrefix("192.0.2.2/28")},
			{LinkIndex: 6, Prefix: netip.MustParsePrefix("203.0.113.3/32"), Deprecated: true},
			{LinkIndex: 7, Prefix: netip.MustParsePrefix("10.244.1.1/24")},
		},
		Settings: map[string]Settings{
			"all":       {},
			"bond0.11":  {},
			"bond0.100": {RPFilter: 2, ARPAnnounce: 2},
		},
		IPForward: true,
		ARP: []ARPAnswer{
			{Target: netip.MustParseAddr("192.0.2.2"), Source: netip.IPv4Unspecified()},
			{Target: netip.MustParseAddr("192.0.2.1"), Source: netip.MustParseAddr("192.0.2.2"), MACs: []string{gatewayMAC}, Replied: true, RTT: 600 * time.Microsecond},
			{Target: netip.MustParseAddr("203.0.113.1"), Source: netip.MustParseAddr("192.0.2.2"), MACs: []string{gatewayMAC}, Replied: true, RTT: 700 * time.Microsecond},
		},
		Routes: []RouteAnswer{
			{RouteQuestion: RouteQuestion{Destination: outside}, Interface: "bond0.11"},
			{RouteQuestion: RouteQuestion{Destination: outside, Source: netip.MustParseAddr("192.0.2.2")}, Interface: "bond0.100", Gateway: netip.MustParseAddr("192.0.2.1")},
			{RouteQuestion: RouteQuestion{Destination: netip.MustParseAddr("192.0.2.1")}, Interface: "bond0.100"},
			{RouteQuestion: RouteQuestion{Destination: netip.MustParseAddr("203.0.113.1")}, Interface: "bond0.11"},
		},
	}
}

// fault is something wrong on a node or in what was published, and what must be found.
type fault struct {
	inject func(*Expected, *Snapshot)
	id     ID
	status Status
	reason string
}

// verdict is what the fault makes of a healthy node.
func (f fault) verdict() Status {
	if f.status == Warn {
		return OK
	}
	return f.status
}

func editLink(name string, edit func(*Link)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.Links {
			if s.Links[i].Name == name {
				edit(&s.Links[i])
			}
		}
	}
}

func removeLink(name string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for _, l := range s.Links {
			if l.Name == name {
				s.Addresses = slices.DeleteFunc(s.Addresses, func(a Address) bool { return a.LinkIndex == l.Index })
			}
		}
		s.Links = slices.DeleteFunc(s.Links, func(l Link) bool { return l.Name == name })
		delete(s.Settings, name)
	}
}

func editSettings(name string, edit func(*Settings)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		if settings, has := s.Settings[name]; has {
			edit(&settings)
			s.Settings[name] = settings
		}
	}
}

func editARP(target netip.Addr, edit func(*ARPAnswer)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.ARP {
			if s.ARP[i].Target == target {
				edit(&s.ARP[i])
			}
		}
	}
}

func silence(a *ARPAnswer) { a.MACs, a.Replied, a.RTT = nil, false, 0 }

func editAddress(addr netip.Addr, edit func(*Address)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.Addresses {
			if s.Addresses[i].Prefix.Addr() == addr {
				edit(&s.Addresses[i])
			}
		}
	}
}

func removeAddress(addr netip.Addr) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		s.Addresses = slices.DeleteFunc(s.Addresses, func(a Address) bool { return a.Prefix.Addr() == addr })
	}
}

// faults are those of practice; each stands alone.
func faults() map[string]fault {
	down := func(l *Link) { l.Up, l.LowerUp, l.OperState = false, false, "down" }
	noCarrier := func(l *Link) { l.LowerUp, l.OperState = false, "lower-layer-down" }
	return map[string]fault{
		"not a member":           {func(e *Expected, _ *Snapshot) { e.Network.Member = false }, Membership, Fail, "NotAMember"},
		"uplink missing":         {removeLink("bond0"), UplinkUp, Fail, "UplinkMissing"},
		"uplink down":            {editLink("bond0", down), UplinkUp, Fail, "UplinkDown"},
		"uplink without carrier": {editLink("bond0", noCarrier), UplinkUp, Fail, "UplinkNoCarrier"},
		"VLAN interface missing": {removeLink("bond0.100"), VLANInterface, Fail, "VLANInterfaceMissing"},
		"wrong VLAN ID":          {editLink("bond0.100", func(l *Link) { l.VLAN = &VLAN{ID: 101, Protocol: "802.1q"} }), VLANInterface, Fail, "WrongVLANID"},
		"parent is a member":     {editLink("bond0.100", func(l *Link) { l.Parent = 2 }), VLANInterface, Fail, "WrongParent"},
		"wrong protocol": {editLink("bond0.100", func(l *Link) { l.VLAN = &VLAN{ID: l.VLAN.ID, Protocol: "802.1ad"} }),
			VLANInterface, Fail, "WrongVLANProtocol"},
		"VLAN interface down":        {editLink("bond0.100", down), VLANUp, Fail, "VLANInterfaceDown"},
		"VLAN interface no carrier":  {editLink("bond0.100", noCarrier), VLANUp, Fail, "VLANInterfaceNoCarrier"},
		"bond degraded":              {editLink("eno2", down), BondHealthy, Warn, "BondDegraded"},
		"no LACP partner":            {editLink("bond0", func(l *Link) { l.Bond = &Bond{Mode: "802.3ad"} }), BondHealthy, Warn, "NoLACPPartner"},
		"jumbo frames":               {editLink("bond0.100", func(l *Link) { l.MTU = 9000 }), MTU, Warn, "UnusualMTU"},
		"address missing":            {removeAddress(nodeIP), NodeAddress, Fail, "AddressMissing"},
		"address on wrong interface": {editAddress(nodeIP, func(a *Address) { a.LinkIndex = 5 }), NodeAddress, Fail, "AddressOnWrongInterface"},
		"prefix misses the gateway":  {func(e *Expected, s *Snapshot) { hostPrefix(e, s); unroute(s) }, NodeAddress, Fail, "WrongPrefixLength"},
		"prefix odd but routed":      {hostPrefix, NodeAddress, Warn, "WrongPrefixLength"},
		"address not registered":     {func(e *Expected, _ *Snapshot) { e.Network.IPs = []netip.Addr{netip.MustParseAddr("192.0.2.9")} }, NodeAddress, Warn, "AddressNotRegistered"},
		"address in use":             {editARP(nodeIP, func(a *ARPAnswer) { a.MACs = []string{"02:00:00:00:00:66"}; a.Replied = true }), NoDuplicate, Fail, "AddressInUse"},
		"gateway silent":             {editARP(gateway, silence), GatewayAnswers, Fail, "GatewaySilent"},
		"gateway of a block silent":  {editARP(second, silence), GatewayAnswers, Warn, "GatewaySilent"},
		"gateway not asked":          {editARP(gateway, func(a *ARPAnswer) { silence(a); a.Error = "operation not permitted" }), GatewayAnswers, Unknown, "GatewayNotAsked"},
		"strict reverse path":        {editSettings("bond0.100", func(s *Settings) { s.RPFilter = 1 }), ReversePath, Fail, "StrictReversePath"},
		"settings unreadable":        {func(_ *Expected, s *Snapshot) { delete(s.Settings, "all") }, ReversePath, Unknown, "SettingsUnreadable"},
		"ARP ignored":                {editSettings("all", func(s *Settings) { s.ARPIgnore = 8 }), ARPAnswering, Fail, "ARPIgnored"},
		"ARP restricted":             {editSettings("all", func(s *Settings) { s.ARPIgnore = max(2, s.ARPIgnore) }), ARPAnswering, Warn, "ARPRestricted"},
		"ARP filtered":               {editSettings("bond0.100", func(s *Settings) { s.ARPFilter = 1 }), ARPAnswering, Warn, "ARPFiltered"},
		"IPVS without strict ARP": {func(_ *Expected, s *Snapshot) {
			s.Links = append(s.Links, Link{Index: 90, Name: "kube-ipvs0", Type: "dummy"})
		}, StrictARP, Fail, "StrictARPMissing"},
		"forwarding off":               {func(_ *Expected, s *Snapshot) { s.IPForward = false }, Forwarding, Fail, "ForwardingOff"},
		"proxy ARP":                    {editSettings("bond0.100", func(s *Settings) { s.ProxyARP = 1 }), ProxyARP, Warn, "ProxyARP"},
		"replies leave elsewhere":      {returnBy("bond0.11", ""), ReturnPath, Warn, "ReturnPathElsewhere"},
		"replies have no route":        {returnBy("", "ENETUNREACH: network is unreachable"), ReturnPath, Warn, "ReturnPathElsewhere"},
		"named interface is not there": {func(e *Expected, _ *Snapshot) { e.Interface = "public0" }, VLANInterface, Fail, "VLANInterfaceMissing"},
		"named interface is no VLAN":   {func(e *Expected, _ *Snapshot) { e.Interface = "cni0" }, VLANInterface, Fail, "NotAVLANInterface"},
		"named uplink is not there":    {func(e *Expected, _ *Snapshot) { e.Uplink = "bond9" }, UplinkUp, Fail, "UplinkMissing"},
	}
}

func hostPrefix(_ *Expected, s *Snapshot) {
	editAddress(nodeIP, func(a *Address) { a.Prefix = netip.PrefixFrom(nodeIP, 32) })(nil, s)
}

func unroute(s *Snapshot) {
	s.Routes = slices.DeleteFunc(s.Routes, func(r RouteAnswer) bool { return r.Destination == gateway })
}

func returnBy(name, refusal string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.Routes {
			if s.Routes[i].Source == nodeIP {
				s.Routes[i].Interface, s.Routes[i].Error = name, refusal
			}
		}
	}
}
