package check

import (
	"maps"
	"net/netip"
	"slices"
)

// faults are those of practice; each is independent of the others.
func faults() map[string]fault {
	all := map[string]fault{}
	for _, group := range []map[string]fault{
		publishedFaults(), linkFaults(), bondFaults(), addressFaults(), gatewayFaults(), kernelFaults(), routeFaults(),
	} {
		maps.Copy(all, group)
	}
	return all
}

func publishedFaults() map[string]fault {
	other := netip.MustParseAddr("10.9.9.9")
	return map[string]fault{
		"API server not reached": {func(e *Expected, _ *Snapshot) { e.Unreached = true },
			NetworkPublished, Unknown, "APIServerNotReached"},
		"network unreadable": {func(e *Expected, _ *Snapshot) { e.Unreadable = "annotation x: bad" },
			NetworkPublished, Unknown, "NetworkUnreadable"},
		"network not published": {func(e *Expected, _ *Snapshot) { e.Published = false }, NetworkPublished, Unknown,
			ReasonWaiting},
		"another server": {func(_ *Expected, s *Snapshot) { s.Machine.ServerID = "ffffffffffffffffffffffff" },
			Identity, Fail, "OtherServer"},
		"another machine": {func(e *Expected, _ *Snapshot) { e.NodeAddresses = []netip.Addr{other} }, Identity, Fail,
			"OtherMachine"},
		"not a member": {func(e *Expected, _ *Snapshot) { e.Network.Member = false }, Membership, Fail, "NotAMember"},
	}
}

func linkFaults() map[string]fault {
	down := func(l *Link) {
		l.Up = false
		l.LowerUp = false
		l.OperState = "down"
	}
	noCarrier := func(l *Link) {
		l.LowerUp = false
		l.OperState = "lower-layer-down"
	}
	wrongID := func(l *Link) { l.VLAN = &VLAN{ID: 101, Protocol: "802.1q"} }
	provider := func(l *Link) { l.VLAN = &VLAN{ID: l.VLAN.ID, Protocol: "802.1ad"} }
	onMember := Link{Index: 40, Name: "eno1.100", Type: "vlan", Parent: 2,
		VLAN: &VLAN{ID: testVLAN, Protocol: "802.1q"}}
	return map[string]fault{
		"uplink missing": {both(removeLink("bond0.11"), removeLink("bond0.100"), removeLink("bond0")),
			UplinkUp, Fail, "UplinkMissing"},
		"uplink down":            {editLink("bond0", down), UplinkUp, Fail, "UplinkDown"},
		"uplink without carrier": {editLink("bond0", noCarrier), UplinkUp, Fail, "UplinkNoCarrier"},
		"named uplink is not there": {func(e *Expected, _ *Snapshot) { e.Uplink = "bond9" }, UplinkUp, Fail,
			"UplinkMissing"},
		"several uplinks": {both(addLink(Link{Index: 41, Name: "bond1", Type: "bond", Bond: &Bond{Mode: modeLACP}}),
			removeDefault, removeAddress(nodeIP), func(e *Expected, _ *Snapshot) { e.NodeAddresses = nil }),
			UplinkUp, Fail, "UplinkAmbiguous"},
		"VLAN interface missing": {removeLink("bond0.100"), VLANInterface, Fail, "VLANInterfaceMissing"},
		"wrong VLAN ID":          {editLink("bond0.100", wrongID), VLANInterface, Fail, "WrongVLANID"},
		"parent is a member": {editLink("bond0.100", func(l *Link) { l.Parent = 2 }), VLANInterface, Fail,
			"WrongParent"},
		"wrong protocol": {editLink("bond0.100", provider), VLANInterface, Fail, "WrongVLANProtocol"},
		"named interface is not there": {func(e *Expected, _ *Snapshot) { e.Interface = "public0" }, VLANInterface,
			Fail, "VLANInterfaceMissing"},
		"named interface is no VLAN": {func(e *Expected, _ *Snapshot) { e.Interface = "cni0" }, VLANInterface, Fail,
			"NotAVLANInterface"},
		"VLAN interface in a bridge": {editLink("bond0.100", func(l *Link) { l.Master = 7 }), VLANInterface, Fail,
			"VLANInterfaceEnslaved"},
		"VLAN interface down":       {editLink("bond0.100", down), VLANUp, Fail, "VLANInterfaceDown"},
		"VLAN interface no carrier": {editLink("bond0.100", noCarrier), VLANUp, Fail, "VLANInterfaceNoCarrier"},
		"jumbo frames":              {editLink("bond0.100", func(l *Link) { l.MTU = 9000 }), MTU, Warn, "UnusualMTU"},
		"tiny frames":               {editLink("bond0.100", func(l *Link) { l.MTU = 1000 }), MTU, Warn, "UnusualMTU"},
		"foreign hardware address": {editLink("bond0.100", func(l *Link) { l.MAC = "02:00:00:00:00:77" }),
			HardwareAddress, Warn, "ForeignHardwareAddress"},
		"VLAN interface twice": {addLink(onMember), VLANUnique, Warn, "SecondVLANInterface"},
		"VLAN taken by a member": {both(addLink(onMember), editARP(gateway, silence), editARP(second, silence)),
			VLANUnique, Fail, "FramesTaken"},
		"VLAN and address twice": {addLink(onMember, "192.0.2.2/32"), VLANUnique, Warn, "SecondVLANInterface"},
	}
}

func bondFaults() map[string]fault {
	down := func(l *Link) {
		l.Up = false
		l.LowerUp = false
		l.OperState = "down"
	}
	return map[string]fault{
		"bond degraded": {editLink("eno2", down), BondHealthy, Warn, "BondDegraded"},
		"member called down": {editSlave("eno2", func(s *Slave) { s.Up = false }), BondHealthy, Warn,
			"BondDegraded"},
		"round robin": {editBond(func(b *Bond) { b.Mode = "balance-rr" }), BondHealthy, Warn,
			"UnexpectedBondMode"},
		"no LACP partner": {editBond(func(b *Bond) { b.PartnerMAC = "" }), BondHealthy, Warn, "NoLACPPartner"},
		"member without partner": {editSlave("eno2", func(s *Slave) { s.NoPartner = true }), BondHealthy, Warn,
			"MemberWithoutPartner"},
		"members of two switches": {editSlave("eno2", func(s *Slave) { s.Aggregator = 2 }), BondHealthy, Warn,
			"AggregatorsDiffer"},
	}
}

func addressFaults() map[string]fault {
	onPrivate := editAddress(nodeIP, func(a *Address) { a.LinkIndex = 5 })
	unlisted := func(e *Expected, _ *Snapshot) { e.Network.IPs = []netip.Addr{netip.MustParseAddr("192.0.2.9")} }
	inUse := func(a *ARPAnswer) {
		a.MACs = []string{"02:00:00:00:00:66"}
		a.Replied = true
	}
	return map[string]fault{
		"address missing":            {removeAddress(nodeIP), NodeAddress, Fail, "AddressMissing"},
		"address on wrong interface": {onPrivate, NodeAddress, Fail, "AddressOnWrongInterface"},
		"prefix misses the gateway":  {prefixLength(32), NodeAddress, Fail, "WrongPrefixLength"},
		"prefix odd but routed":      {prefixLength(29), NodeAddress, Warn, "WrongPrefixLength"},
		"address not registered":     {unlisted, NodeAddress, Warn, "AddressNotRegistered"},
		"no address at all": {both(func(e *Expected, _ *Snapshot) { e.Network.IPs = nil }, removeAddress(nodeIP)),
			NodeAddress, Fail, "AddressMissing"},
		"address in use":          {editARP(nodeIP, inUse), NoDuplicate, Fail, "AddressInUse"},
		"block on a bridge":       {addAddress(7, "192.0.2.9/29"), BlocksHere, Warn, "BlockOnOtherInterface"},
		"block taken by a bridge": {addAddress(7, "192.0.2.3/30"), BlocksHere, Fail, "GatewayRoutedElsewhere"},
		"block taken by a route": {addRoute(TableMain, "192.0.2.0/30", 5), BlocksHere, Fail,
			"GatewayRoutedElsewhere"},
		"gateway refused by a route": {refuseGateway, BlocksHere, Fail, "GatewayUnroutable"},
	}
}

// refuseGateway is a rule that refuses the block: an unroutable table before all others.
func refuseGateway(_ *Expected, s *Snapshot) {
	s.Rules = append(s.Rules, Rule{Priority: 10, Destination: netip.MustParsePrefix("192.0.2.0/28")})
}

func gatewayFaults() map[string]fault {
	notAsked := func(a *ARPAnswer) { silence(a); a.Error = "operation not permitted" }
	return map[string]fault{
		"gateway silent":             {editARP(gateway, silence), GatewayAnswers, Fail, "GatewaySilent"},
		"gateway of a block silent":  {editARP(second, silence), GatewayAnswers, Warn, "GatewaySilent"},
		"gateway not asked":          {editARP(gateway, notAsked), GatewayAnswers, Unknown, "GatewayNotAsked"},
		"gateway answered twice":     {editARP(gateway, twice), GatewayUnique, Warn, "GatewayAnsweredTwice"},
		"address of gateway is here": {addAddress(6, "203.0.113.1/32"), GatewayUnique, Fail, "GatewayHeldHere"},
		"gateway pinned":             {pin("02:00:00:00:00:77"), GatewayUnique, Fail, "GatewayPinned"},
		"gateway slow":               {editARP(gateway, slow), GatewayLatency, Warn, "GatewaySlow"},
		"gateway of the block is lo": {addAddress(1, "203.0.113.1/32"), GatewayUnique, Fail, "GatewayHeldHere"},
	}
}

// pin writes the gateway into the neighbour table.
func pin(mac string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		s.Routes = append(s.Routes, RouteAnswer{RouteQuestion: RouteQuestion{Destination: gateway}, Pinned: mac})
	}
}

func kernelFaults() map[string]fault {
	ipvs := Link{Index: 90, Name: ipvsInterface, Type: "dummy"}
	anotherOfSubnet := both(addAddress(6, "192.0.2.3/28"),
		setSetting("bond0.100", "promote_secondaries", 0))
	borrowed := both(func(e *Expected, _ *Snapshot) {
		e.Network.IPs = nil
		e.Network.Blocks = nil
	}, removeAddress(nodeIP),
		setSetting("bond0.100", "arp_announce", 0))
	return map[string]fault{
		"strict reverse path": {setSetting("bond0.100", "rp_filter", 1), ReversePath, Fail,
			"StrictReversePath"},
		"no default route": {removeDefault, ReversePath, Fail, "NoRouteToClients"},
		"settings unreadable": {func(_ *Expected, s *Snapshot) { delete(s.Settings, "all") }, ReversePath, Unknown,
			"SettingsUnreadable"},
		"ARP off": {editLink("bond0.100", func(l *Link) { l.NoARP = true }), ARPAnswering, Fail, "ARPOff"},
		"ARP ignored": {setSetting("all", "arp_ignore", 8), ARPAnswering, Fail,
			"ARPIgnored"},
		"ARP restricted": {editSettings("all", func(s Settings) { s["arp_ignore"] = max(2, s["arp_ignore"]) }),
			ARPAnswering, Warn, "ARPRestricted"},
		"ARP filtered": {setSetting("bond0.100", "arp_filter", 1), ARPAnswering, Warn,
			"ARPFiltered"},
		"sender borrowed": {borrowed, ARPSource, Warn, "ARPSourceForeign"},
		"IPVS without strict ARP": {both(addLink(ipvs), func(_ *Expected, s *Snapshot) { s.IPVSReroute = true }),
			StrictARP, Fail, "StrictARPMissing"},
		"settings unreadable with IPVS": {both(addLink(ipvs),
			func(_ *Expected, s *Snapshot) { delete(s.Settings, "bond0.100") }),
			ReversePath, Unknown, "SettingsUnreadable"},
		"forwarding off": {func(_ *Expected, s *Snapshot) { s.IPForward = false }, Forwarding, Fail,
			"ForwardingOff"},
		"forwarding off here": {setSetting("bond0.100", "forwarding", 0), Forwarding,
			Fail, "ForwardingOffHere"},
		"forwarding unreadable": {func(_ *Expected, s *Snapshot) {
			s.Unread = []string{"net/ipv4/ip_forward: permission denied"}
		}, Forwarding, Unknown, "SettingsUnreadable"},
		"proxy ARP": {setSetting("bond0.100", "proxy_arp", 1), ProxyARP, Warn, "ProxyARP"},
		"own packets let in": {
			setSetting("bond0.100", "accept_local", 1), RiskySettings, Warn, "AcceptLocal"},
		"secondaries are not kept": {anotherOfSubnet, RiskySettings, Warn, "SecondariesLost"},
	}
}

func removeDefault(_ *Expected, s *Snapshot) {
	s.Tables[TableMain] = slices.DeleteFunc(s.Tables[TableMain],
		func(r Route) bool { return r.Destination == everywhere })
}

func routeFaults() map[string]fault {
	foreign := func(_ *Expected, s *Snapshot) {
		s.Rules = append(s.Rules, Rule{Priority: 500, Mark: 0x2000, Mask: 0xf000, Table: TableMain})
	}
	connectedOnly := Route{Destination: netip.MustParsePrefix("192.0.2.0/28"), LinkIndex: 6, Type: "unicast"}
	half := Route{Destination: netip.MustParsePrefix("128.0.0.0/1"), Gateway: gateway, LinkIndex: 6, Type: "unicast"}
	calico := Link{Index: 91, Name: "cali0a1b2c3d4e5", Type: "veth"}
	return map[string]fault{
		"no rule by source": {removeRules(bySource), ReturnPath, Warn, "ReturnPathElsewhere"},
		"no rule by mark":   {removeRules(byMark), ServiceReplies, Warn, "ServiceRepliesElsewhere"},
		"no rule at all": {removeRules(func(r Rule) bool { return bySource(r) || byMark(r) }), ReturnPath, Warn,
			"ReturnPathElsewhere"},
		"table lost":           {setTable(1100), RoutingTables, Warn, "TableEmpty"},
		"table lost its way":   {setTable(1100, connectedOnly), RoutingTables, Warn, "TableWithoutDefault"},
		"half of a table lost": {setTable(1100, half), RoutingTables, Warn, "TableWithoutDefault"},
		"table leads elsewhere": {setTable(1100, Route{Destination: everywhere,
			Gateway: netip.MustParseAddr("10.0.0.1"), LinkIndex: 5, Type: "unicast"}),
			ReturnPath, Warn, "ReturnPathElsewhere"},
		"mark of a foreign rule": {both(managing, foreign), MarkBits, Warn, "MarkClash"},
		"mark of kube-proxy": {both(managing, func(e *Expected, _ *Snapshot) { e.Mask = 0x6000 }), MarkBits, Warn,
			"MarkClash"},
		"mark of Calico": {both(managing, addLink(calico), func(e *Expected, _ *Snapshot) { e.Mask = 0x12000 }),
			MarkBits, Warn, "MarkClash"},
		"Cilium": {both(addLink(Link{Index: 92, Name: "cilium_host", Type: "veth"}),
			addProgram(6, "tc ingress", "cil_from_netdev-bond0.100")), Verifiable, Warn, "ReturnPathUnverified"},
		"unknown eBPF program": {addProgram(6, "tc ingress", "filter.o:[ingress]"), Verifiable, Warn,
			"ReturnPathUnverified"},
	}
}
