package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestConsequencesAreSkipped(t *testing.T) {
	report := Evaluate(nodeWith(removeLink("bond0.100")))
	for _, id := range []ID{VLANUp, MTU, HardwareAddress, NodeAddress, NoDuplicate, GatewayAnswers, ReversePath,
		ReturnPath, ServiceReplies} {
		if f := report.Finding(id); f.Status != Skip || f.Because != "because of PN102" {
			t.Errorf("%s is %s %q, want it skipped because of PN102", id, f.Status, f.Because)
		}
	}
}

func TestWaitingForController(t *testing.T) {
	report := Evaluate(ExpectedOf(map[string]string{"some": "other"}, nil, ""), goodNode())
	if v := report.Outcome(); v.Status != Unknown || v.Reason != ReasonWaiting {
		t.Errorf("result is %s %s, want Unknown %s", v.Status, v.Reason, ReasonWaiting)
	}
}

func TestUnreadableAnnotation(t *testing.T) {
	report := Evaluate(ExpectedOf(map[string]string{
		"phoenixnap.com/public-networks": `[{"name":"default","id":"x","vlan":"ten"}]`}, nil, ""), goodNode())
	if v := report.Outcome(); v.Status != Unknown || v.Reason != "NetworkUnreadable" ||
		!strings.Contains(report.Finding(NetworkPublished).Cause, "annotation phoenixnap.com/public-networks: ") {
		t.Errorf("result is %s %s, want Unknown NetworkUnreadable", v.Status, v.Reason)
	}
}

func TestNoBlockYet(t *testing.T) {
	report := Evaluate(nodeWith(func(e *Expected, _ *Snapshot) { e.Network.Blocks = nil }))
	for _, id := range []ID{GatewayAnswers, GatewayUnique, GatewayLatency} {
		if f := report.Finding(id); f.Status != Skip {
			t.Errorf("%s is %s, want it skipped: there is no gateway to ask", f.ID, f.Status)
		}
	}
	if v := report.Outcome(); v.Status != OK {
		t.Errorf("result is %s %s (%s), want OK", v.Status, v.Reason, v.Message)
	}
}

func TestStrictReversePathIsHarmlessWithDefaultRouteByVLAN(t *testing.T) {
	byVLAN := setTable(TableMain, Route{Destination: everywhere, Gateway: gateway, LinkIndex: 6, Type: "unicast"})
	strict := setSetting("bond0.100", "rp_filter", 1)
	report := Evaluate(nodeWith(byVLAN, strict, removeRules(func(r Rule) bool { return bySource(r) || byMark(r) })))
	for _, id := range []ID{ReversePath, ReturnPath, ServiceReplies} {
		if f := report.Finding(id); f.Status != OK {
			t.Errorf("%s is %s (%s), want OK", f.ID, f.Status, f.Cause)
		}
	}
}

// TestSplitRoutes: half of the Internet by another network is found, whichever half it is.
func TestSplitRoutes(t *testing.T) {
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1", "64.0.0.0/2"} {
		report := Evaluate(nodeWith(addRoute(1100, half, 5)))
		for _, id := range []ID{ReturnPath, ServiceReplies} {
			if f := report.Finding(id); f.Status != Warn {
				t.Errorf("with %s elsewhere %s is %s, want WARN", half, id, f.Status)
			}
		}
	}
}

// TestUnaskedKernel: a machine whose kernel was not asked is checked by its settings.
func TestUnaskedKernel(t *testing.T) {
	e := expectedNode()
	s := goodNode()
	if f := Evaluate(e, s).Finding(ReversePath); f.Status != OK {
		t.Errorf("loose filtering is %s, want OK", f.Status)
	}
	setSetting("bond0.100", "rp_filter", 1)(&e, &s)
	if f := Evaluate(e, s).Finding(ReversePath); f.Status != Fail || f.Reason != "StrictReversePath" {
		t.Errorf("strict filtering is %s %s, want FAIL StrictReversePath", f.Status, f.Reason)
	}
}

func TestMembershipWithoutAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		address string
		want    Status
	}{
		"an address of a block": {"192.0.2.7/28", OK},
		"link-local":            {"169.254.3.4/32", OK},
		"none":                  {"", Fail},
	} {
		t.Run(name, func(t *testing.T) {
			injections := []func(*Expected, *Snapshot){func(e *Expected, _ *Snapshot) { e.Network.IPs = nil },
				removeAddress(nodeIP)}
			if tc.address != "" {
				injections = append(injections, addAddress(6, tc.address))
			}
			if f := Evaluate(nodeWith(injections...)).Finding(NodeAddress); f.Status != tc.want {
				t.Errorf("%s is %s (%s), want %s", f.ID, f.Status, f.Cause, tc.want)
			}
		})
	}
}

// TestIdentity: one of the two proofs is enough, and what a machine does not know proves nothing.
func TestIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		inject func(*Expected, *Snapshot)
		want   Status
	}{
		"only server ID": {func(e *Expected, _ *Snapshot) { e.NodeAddresses = nil }, OK},
		"only address":   {func(_ *Expected, s *Snapshot) { s.Machine = Machine{} }, OK},
		"neither": {func(e *Expected, s *Snapshot) {
			e.NodeAddresses = nil
			s.Machine = Machine{}
		}, Skip},
		"only the public address, and it is lost": {both(func(e *Expected, s *Snapshot) {
			e.NodeAddresses = e.Network.IPs
			s.Machine = Machine{}
		}, removeAddress(nodeIP)), Skip},

		"the Node names no server yet":   {func(e *Expected, _ *Snapshot) { e.Network.ServerID = "" }, OK},
		"server ID differs, not address": {func(_ *Expected, s *Snapshot) { s.Machine.ServerID = "a" }, Fail},
	} {
		if f := Evaluate(nodeWith(tc.inject)).Finding(Identity); f.Status != tc.want {
			t.Errorf("%s: %s %s%s, want %s", name, f.Status, f.Cause, f.Because, tc.want)
		}
	}
}

func TestIPVSRoutesRepliesAgain(t *testing.T) {
	ipvs := both(addLink(Link{Index: 90, Name: ipvsInterface, Type: "dummy"}),
		setSetting("all", "arp_ignore", 1), removeRules(byMark))
	reroute := func(_ *Expected, s *Snapshot) { s.IPVSReroute = true }
	if f := Evaluate(nodeWith(ipvs, reroute)).Finding(ServiceReplies); f.Status != OK {
		t.Errorf("with IPVS and a rule by source: %s %s, want OK", f.Status, f.Cause)
	}
	if f := Evaluate(nodeWith(ipvs)).Finding(ServiceReplies); f.Status != Warn {
		t.Errorf("with IPVS that does not route again: %s, want WARN", f.Status)
	}
	if f := Evaluate(nodeWith(ipvs, reroute, removeRules(bySource))).Finding(ServiceReplies); f.Status != Warn {
		t.Errorf("with IPVS and no rule: %s, want WARN", f.Status)
	}
}

// TestPods: the source of a reply is what was named, else a pod by its route, else the neighbour of the bridge.
func TestPods(t *testing.T) {
	named := func(e *Expected, _ *Snapshot) { e.PodSources = []netip.Addr{netip.MustParseAddr("10.244.1.77")} }
	routed := both(addLink(Link{Index: 91, Name: "veth1", Type: "veth"}), addRoute(TableMain, "10.244.1.9/32", 91))
	for name, tc := range map[string]struct {
		injections []func(*Expected, *Snapshot)
		want       []string
	}{
		"bridge": {nil, []string{"10.244.1.2"}},
		"route":  {[]func(*Expected, *Snapshot){routed}, []string{"10.244.1.9"}},
		"named":  {[]func(*Expected, *Snapshot){routed, named}, []string{"10.244.1.77"}},
		"none":   {[]func(*Expected, *Snapshot){removeLink("cni0")}, nil},
	} {
		e, s := nodeWith(tc.injections...)
		var got []string
		for _, pod := range look(e, s).pods() {
			got = append(got, pod.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if f := Evaluate(nodeWith(removeLink("cni0"))).Finding(ServiceReplies); f.Status != Skip {
		t.Errorf("without pods: %s, want SKIP", f.Status)
	}
}

// TestEBPFIsNotJudgedByRoutes: where eBPF programs may balance Services, look-ups prove nothing of replies, managed or
// not, unless every way leads by the VLAN interface.
func TestEBPFIsNotJudgedByRoutes(t *testing.T) {
	byVLAN := setTable(TableMain, Route{Destination: everywhere, Gateway: gateway, LinkIndex: 6, Type: "unicast"})
	cilium := addLink(Link{Index: 92, Name: "cilium_host", Type: "veth"})
	ipvs := both(addLink(Link{Index: 90, Name: ipvsInterface, Type: "dummy"}), setSetting("all", "arp_ignore", 1),
		func(_ *Expected, s *Snapshot) { s.IPVSReroute = true })
	for name, tc := range map[string]struct {
		inject           func(*Expected, *Snapshot)
		verifiable, ways Status
		observed         string
	}{
		"Cilium":         {cilium, Warn, Skip, "interface cilium_host"},
		"managed":        {both(cilium, managing), Warn, Skip, "interface cilium_host"},
		"without a mark": {both(cilium, removeRules(byMark)), Warn, Skip, "interface cilium_host"},
		"beside IPVS":    {both(cilium, ipvs), Warn, Skip, "interface cilium_host"},
		"default route":  {both(cilium, byVLAN), OK, OK, "interface cilium_host; the default route leads"},
		"Cilium's program": {addProgram(6, "tc ingress", "cil_from_netdev-bond0.100"), Warn, Skip,
			"tc ingress program on bond0.100 (cil_from_netdev-bond0.100)"},
		"Calico's program on the uplink": {addProgram(4, "tc egress", "cali_tc_preamble"), Warn, Skip,
			"tc egress program on bond0 (cali_tc_preamble)"},
		"Calico's interface": {addLink(Link{Index: 93, Name: "bpfin.cali", Type: "veth"}), Warn, Skip,
			"interface bpfin.cali"},
		"Calico without eBPF":     {addLink(Link{Index: 93, Name: "cali0a1b2c3d4e5", Type: "veth"}), OK, OK, "no eBPF"},
		"unknown on a member":     {editLink("eno1", func(l *Link) { l.XDP = true }), Warn, Skip, "XDP program on eno1"},
		"without a name":          {addProgram(6, "tc ingress", ""), Warn, Skip, "tc ingress program on bond0.100"},
		"program of another link": {addProgram(7, "tc ingress", "cil_from_netdev"), OK, OK, "no eBPF"},
	} {
		report := Evaluate(nodeWith(tc.inject))
		f := report.Finding(Verifiable)
		if f.Status != tc.verifiable || !strings.HasPrefix(f.Observed, tc.observed) {
			t.Errorf("%s: %s is %s %q, want %s %q", name, f.ID, f.Status, f.Observed, tc.verifiable, tc.observed)
		}
		if f := report.Finding(ServiceReplies); f.Status != tc.ways {
			t.Errorf("%s: %s is %s (%s%s), want %s", name, f.ID, f.Status, f.Cause, f.Because, tc.ways)
		}
		if o := report.Outcome(); o.Status != OK {
			t.Errorf("%s: the node is %s: %s", name, o.Status, o.Message)
		}
	}
}

func TestMarkClash(t *testing.T) {
	good := goodNode()
	for name, tc := range map[string]struct {
		snapshot Snapshot
		mask     uint32
		want     string
	}{
		"free":          {Snapshot{}, 0x2000, ""},
		"a rule":        {good, 0x2000, "the rule 1055: from all fwmark 0x2000/0x2000 lookup 1100"},
		"kube-proxy":    {Snapshot{}, 0x4000, "kube-proxy, which uses the bits 0xc000"},
		"Calico absent": {Snapshot{}, 0x10000, ""},
		"Calico":        {Snapshot{Links: []Link{{Name: "tunl0"}}}, 0x10000, "Calico, which uses the bits 0xffff0000"},
		"own rule": {Snapshot{Rules: []Rule{{Mark: 0x2000, Mask: 0x2000, Table: 1100, Protocol: ManagedProtocol}}},
			0x2000, ""},
	} {
		if got, found := MarkClash(tc.snapshot, tc.mask); got != tc.want || found != (tc.want != "") {
			t.Errorf("%s: %q (%t), want %q", name, got, found, tc.want)
		}
	}
}

// TestFreeMark advises bits that nothing uses; where a rule matches all of them, what else to do.
func TestFreeMark(t *testing.T) {
	for name, tc := range map[string]struct {
		rules []Rule
		want  string
	}{
		"none in use": {nil, "--mark=0xf0"},
		"some in use": {[]Rule{{Mask: 0xff, Mark: 0x11, Table: 100}}, "--mark=0xf00"},
		"all in use":  {[]Rule{{Mask: 0xffffffff, Mark: 0xffffffff, Table: 100}}, "without --manage=return-path"},
	} {
		if got := (view{Snapshot: Snapshot{Rules: tc.rules}}).freeMark(); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %s in it", name, got, tc.want)
		}
	}
}

// TestOnlySecondariesOfOneSubnet: addresses of different subnets do not go together.
func TestOnlySecondariesOfOneSubnet(t *testing.T) {
	for _, address := range []string{"203.0.113.4/29", "192.0.2.3/32"} {
		if f := Evaluate(nodeWith(addAddress(6, address))).Finding(RiskySettings); f.Status != OK {
			t.Errorf("with %s: %s %s, want OK", address, f.Status, f.Reason)
		}
	}
}

func TestQuestions(t *testing.T) {
	e := expectedNode()
	s := goodNode()
	link, asks, routes := Questions(e, s)
	want := []Question{
		{Target: nodeIP, Source: netip.IPv4Unspecified()},
		{Target: gateway, Source: nodeIP},
		{Target: second, Source: nodeIP},
	}
	if diff := cmp.Diff(want, asks, sameAddr); diff != "" || link != "bond0.100" {
		t.Errorf("questions on %q (-want +got):\n%s", link, diff)
	}
	if len(routes) > 32 {
		t.Errorf("%d route look-ups, want few: they are made every 10 s", len(routes))
	}
	if !slices.Contains(routes, RouteQuestion{Destination: netip.MustParseAddr("10.244.1.2"), Source: Outside(),
		Iif: "bond0.100"}) {
		t.Errorf("no question whether clients' packets are accepted: %v", routes)
	}
}

// TestNeverAsksAsAService: a request whose sender is the address of a Service would redirect its traffic; so would one
// whose sender is the gateway's.
func TestNeverAsksAsAService(t *testing.T) {
	e := expectedNode()
	s := goodNode()
	removeAddress(nodeIP)(&e, &s)
	addAddress(6, "203.0.113.4/29")(&e, &s)
	addAddress(6, "203.0.113.1/29")(&e, &s)
	e.Virtual = []netip.Addr{netip.MustParseAddr("203.0.113.4")}
	if _, asks, _ := Questions(e, s); len(asks) != 0 {
		t.Errorf("asks %v although the interface has no address of the node's own", asks)
	}
	if got := Evaluate(e, s).Source; got != "" {
		t.Errorf("source is %q, want none", got)
	}
}

// TestEvidenceIsBounded: the findings of a node with hundreds of interfaces are no longer than those of one with few.
func TestEvidenceIsBounded(t *testing.T) {
	many := func(_ *Expected, s *Snapshot) {
		for i := range 500 {
			s.Links = append(s.Links, Link{Index: 100 + i, Name: "veth" + strings.Repeat("x", i%9), Type: "veth",
				Up: true, LowerUp: true})
		}
	}
	report := Evaluate(nodeWith(many, removeLink("bond0.11"), removeLink("bond0.100"), removeLink("bond0")))
	for _, f := range report.Findings {
		if len(f.Observed) > 500 || len(f.Cause) > 500 {
			t.Errorf("%s has %d and %d characters", f.ID, len(f.Observed), len(f.Cause))
		}
	}
}

// TestLatencyIsHeldAgainstTheGatewayWhereItIsCertain: a request that was repeated may have been lost.
func TestLatencyIsHeldAgainstTheGatewayWhereItIsCertain(t *testing.T) {
	for name, tc := range map[string]struct {
		least, most time.Duration
		status      Status
		observed    string
	}{
		"quick":         {time.Millisecond, time.Millisecond, OK, "192.0.2.1 1.0 ms"},
		"slow":          {350 * time.Millisecond, 350 * time.Millisecond, Warn, "350.0 ms from 192.0.2.1"},
		"lost, or slow": {5 * time.Millisecond, 605 * time.Millisecond, OK, "192.0.2.1 5.0 ms to 605.0 ms"},
		"slow, and maybe lost": {250 * time.Millisecond, 850 * time.Millisecond, Warn,
			"250.0 ms to 850.0 ms from 192.0.2.1"},
	} {
		report := Evaluate(nodeWith(editARP(gateway, func(a *ARPAnswer) {
			a.RTT = tc.least
			a.Within = tc.most
		})))
		if f := report.Finding(GatewayLatency); f.Status != tc.status || !strings.HasPrefix(f.Observed, tc.observed) {
			t.Errorf("%s: %s %q, want %s %q", name, f.Status, f.Observed, tc.status, tc.observed)
		}
	}
}

// TestFramesAreTakenOnlyWhereNoneCome: a second interface below the bond is a warning as long as a gateway is heard.
func TestFramesAreTakenOnlyWhereNoneCome(t *testing.T) {
	onMember := Link{Index: 40, Name: "eno1.100", Type: "vlan", Parent: 2,
		VLAN: &VLAN{ID: testVLAN, Protocol: "802.1q"}}
	onBridge := Link{Index: 40, Name: "cni0.100", Type: "vlan", Parent: 7,
		VLAN: &VLAN{ID: testVLAN, Protocol: "802.1q"}}
	silent := both(editARP(gateway, silence), editARP(second, silence))
	heard := func(a *ARPAnswer) {
		a.MACs = []string{gatewayMAC}
		a.Replied = false
	}
	for name, tc := range map[string]struct {
		inject func(*Expected, *Snapshot)
		reason string // of PN107
		first  ID
	}{
		"no gateway is heard": {both(addLink(onMember), silent), "FramesTaken", VLANUnique},
		"another gateway answers": {both(addLink(onMember), editARP(gateway, silence)), "SecondVLANInterface",
			GatewayAnswers},
		"a gateway is heard": {both(addLink(onMember), silent, editARP(second, heard)), "SecondVLANInterface",
			GatewayAnswers},
		"the other interface is down": {both(addLink(onMember), editLink("eno1.100", func(l *Link) { l.Up = false }),
			silent), "FramesTaken", VLANUnique},
		"the other is of another network": {both(addLink(onBridge), silent), "", GatewayAnswers},
	} {
		report := Evaluate(nodeWith(tc.inject))
		first, _ := report.FirstCause()
		if f := report.Finding(VLANUnique); f.Reason != tc.reason || first.ID != tc.first {
			t.Errorf("%s: PN107 is %s %s and the first cause %s, want %s and %s",
				name, f.Status, f.Reason, first.ID, tc.reason, tc.first)
		}
	}
}

// TestSecondUplink: with the VLAN ID on two uplinks, the interface on the server's own uplink is meant, whatever their
// names are. The other one belongs to another network, and nothing is wrong with it.
func TestSecondUplink(t *testing.T) {
	for _, name := range []string{"abond9", "zbond9"} {
		other := Link{Index: 901, Name: name + ".100", Type: "vlan", Parent: 900,
			VLAN: &VLAN{ID: testVLAN, Protocol: "802.1q"}}
		e, s := nodeWith(addLink(Link{Index: 900, Name: name, Type: "bond", Bond: &Bond{Mode: modeActiveBackup}}),
			addLink(other, "198.51.100.7/29"))
		report := Evaluate(e, s)
		if report.Interface != "bond0.100" || report.Source != nodeIP.String() {
			t.Errorf("%s: interface %s, source %s", name, report.Interface, report.Source)
		}
		if f := report.Finding(VLANUnique); f.Status != OK {
			t.Errorf("%s: %s is %s: %s", name, f.ID, f.Status, f.Observed)
		}
		if link, _, _ := Questions(e, s); link != "bond0.100" {
			t.Errorf("%s: ARP requests leave by %s", name, link)
		}
	}
}

// TestOwnAddresses: the node's own are those of IPv4 on the VLAN interface that are neither gateways nor of Services;
// those that another interface carries, too, are listed in one order.
func TestOwnAddresses(t *testing.T) {
	const vlan, other = 6, 2
	at := func(index int, prefix string) Address {
		return Address{LinkIndex: index, Prefix: netip.MustParsePrefix(prefix)}
	}
	s := Snapshot{Addresses: []Address{
		at(vlan, "2001:db8::2/64"), at(vlan, "192.0.2.3/28"), at(vlan, "192.0.2.2/28"), at(other, "192.0.2.3/32"),
		at(other, "10.0.0.2/24"), at(other, "192.0.2.2/32"), at(vlan, "192.0.2.1/28"),
	}}
	e := Expected{Network: contract.NodeNetwork{Blocks: []contract.NetworkBlock{{
		CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: gateway}}}}
	own := ownAddresses(e, s, &Link{Index: vlan})
	if got, want := fmt.Sprint(own), "[192.0.2.2/28 192.0.2.3/28]"; got != want {
		t.Errorf("own addresses %s, want %s", got, want)
	}
	shared := view{Expected: e, Snapshot: s, own: own}.shared(Link{Index: other})
	if got, want := fmt.Sprint(shared), "[192.0.2.2 192.0.2.3]"; got != want {
		t.Errorf("shared with another interface: %s, want %s", got, want)
	}
}

// TestMisnumbered: a VLAN interface with another ID is meant for the network when its name or its only address says so,
// whatever other interfaces carry.
func TestMisnumbered(t *testing.T) {
	at := func(index int, prefix string) Address {
		return Address{LinkIndex: index, Prefix: netip.MustParsePrefix(prefix)}
	}
	for name, tc := range map[string]struct {
		link string
		on   []Address
		want bool
	}{
		"name":                       {"bond0.100", nil, true},
		"other name":                 {"vlan100", nil, true},
		"address":                    {"lan", []Address{at(7, "192.0.2.2/28")}, true},
		"address and IPv6":           {"lan", []Address{at(7, "192.0.2.2/28"), at(7, "fe80::1/64")}, true},
		"a further address":          {"lan", []Address{at(7, "192.0.2.2/28"), at(7, "10.1.0.2/24")}, false},
		"address on another link":    {"lan", []Address{at(8, "192.0.2.2/28")}, false},
		"another link's own address": {"lan", []Address{at(7, "192.0.2.2/28"), at(8, "10.1.0.2/24")}, true},
	} {
		v := view{Expected: Expected{Network: contract.NodeNetwork{VLAN: 100,
			IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}},
			Snapshot: Snapshot{Links: []Link{{Index: 7, Name: tc.link, Parent: 8, VLAN: &VLAN{ID: 101}},
				{Index: 8, Name: "eno1"}}, Addresses: tc.on}}
		v.trunk = v.LinkNamed("eno1")
		if found := v.misnumbered() != nil; found != tc.want {
			t.Errorf("%s: found %t, want %t", name, found, tc.want)
		}
	}
}
