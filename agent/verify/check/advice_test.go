package check

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// A site is a server with what is around it. Faults are made where they come from, such as a cable or the account, and
// observe derives what the agent then sees. Whoever follows advice changes the site, not what is seen.
type site struct {
	e Expected // the options of the agent, and the Node
	s Snapshot // what the kernel has

	// account is what phoenixNAP has; annotations, when set, are what the controller wrote of it.
	account     contract.NodeNetwork
	annotations map[string]string
	controller  struct{ stopped, withoutBalancer, withoutServer bool }

	// unplugged are network cards without a link, strangers what other machines than the router answer for, by hardware
	// address. unassigned is a block that the router does not serve.
	unplugged  map[string]bool
	strangers  map[string]netip.Addr
	unassigned netip.Prefix
	flooded    bool
	// refusal is the error of ARP requests.
	refusal string
	// leads is the interface that leads to the public network.
	leads string
	// late: the bond was read before its members lost their links, and the VLAN interface afterwards.
	late bool
	// finding is the one whose advice is followed.
	finding Finding
}

func newSite() *site {
	e := expectedNode()
	return &site{e: e, s: goodNode(), account: e.Network, unplugged: map[string]bool{},
		strangers: map[string]netip.Addr{}, leads: "bond0"}
}

// change applies faults of the other tests.
func (p *site) change(all ...func(*Expected, *Snapshot)) {
	for _, each := range all {
		each(&p.e, &p.s)
	}
}

// observe returns what the agent sees.
func (p *site) observe() Report {
	p.publish()
	p.carry()
	for i := range p.s.ARP {
		p.answer(&p.s.ARP[i])
	}
	askRoutes(p.e, &p.s)
	return Evaluate(p.e, p.s)
}

// publish has a controller that works write the annotations that are missing.
func (p *site) publish() {
	if p.annotations == nil {
		return
	}
	if c := p.controller; !c.stopped && !c.withoutBalancer && !c.withoutServer {
		all := nodenet.On(p.account)
		maps.Copy(all, p.annotations)
		p.annotations = all
	}
	read := ExpectedOf(p.annotations, p.e.NodeAddresses, "")
	p.e.Published = read.Published
	p.e.Unreadable = read.Unreadable
	if read.Published {
		p.e.Network = read.Network
	}
}

// carry gives each link the carrier of what is below it.
func (p *site) carry() {
	for i := range p.s.Links {
		if l := &p.s.Links[i]; l.Type == "device" && l.Name != "lo" {
			p.setCarrier(l, l.Up && !p.unplugged[l.Name])
		}
	}
	for i := range p.s.Links {
		if l := &p.s.Links[i]; l.Type == "bond" {
			works := func(m Link) bool { return m.Master == l.Index && m.LowerUp }
			p.setCarrier(l, slices.ContainsFunc(p.s.Links, works))
		}
	}
	for i := range p.s.Links {
		if l := &p.s.Links[i]; l.VLAN != nil {
			below := p.s.LinkIndexed(l.Parent)
			p.setCarrier(l, below != nil && below.LowerUp)
		}
	}
	if p.late {
		p.setCarrier(p.s.LinkNamed("bond0"), true)
	}
}

func (p *site) setCarrier(l *Link, carrier bool) {
	l.LowerUp = carrier
	l.OperState = map[bool]string{true: "up", false: "lower-layer-down"}[carrier]
}

// answer makes the answers to an ARP request.
func (p *site) answer(a *ARPAnswer) {
	*a = ARPAnswer{Target: a.Target, Source: a.Source, Error: p.refusal}
	if p.refusal != "" {
		return
	}
	for mac, held := range p.strangers {
		if held == a.Target {
			a.MACs = append(a.MACs, mac)
		}
	}
	for _, b := range p.e.Network.Blocks {
		if b.Gateway == a.Target && b.CIDR != p.unassigned {
			a.MACs = append(a.MACs, gatewayMAC)
		}
	}
	slices.Sort(a.MACs)
	if a.Replied = len(a.MACs) > 0; a.Replied {
		a.RTT = map[bool]time.Duration{true: 300 * time.Millisecond, false: 600 * time.Microsecond}[p.flooded]
	}
}

// way is one way to follow a sentence; words are what the practice found in it.
type way func(p *site, words []string, fix Fix)

// practices are what a person does who reads a note or a command of a finding. One with several ways offers a choice.
var practices = []struct {
	says *regexp.Regexp
	ways []way
}{
	{regexp.MustCompile(`^phoenixnap-agent diagnose --vlan (\d+) --network (\S+) --address (\S+)$`), []way{
		func(p *site, words []string, _ Fix) {
			vlan, _ := strconv.Atoi(words[1])
			e, err := ExpectedByHand(vlan, []string{words[2]}, []string{words[3]})
			if err != nil {
				panic(err)
			}
			p.e = e
		}}},
	{regexp.MustCompile(`^name a kubeconfig with --kubeconfig, or describe the network with --vlan,`), []way{
		func(p *site, _ []string, _ Fix) { p.e.Unreached = false }}},
	{regexp.MustCompile(`the controller and the agent in the same version; remove the annotation, and the`), []way{
		func(p *site, _ []string, _ Fix) {
			named := regexp.MustCompile(`annotation ([^ :]+)`).FindStringSubmatch(p.finding.Cause)
			delete(p.annotations, named[1])
		}}},
	{regexp.MustCompile(`^check that the controller runs, that its option loadbalancer is set, and that it found the`),
		[]way{func(p *site, _ []string, _ Fix) {
			p.controller.stopped = false
			p.controller.withoutBalancer = false
			p.controller.withoutServer = false
		}}},
	{regexp.MustCompile(`^if the agent's kubeconfig or --node-name is another node's, correct it; if two machines .*` +
		`give each machine its own name, delete the Node, and restart the kubelets`), []way{register}},
	{regexp.MustCompile(`API \(POST /servers/(\S+)/public-networks\) add the server to network (\S+) with an address `),
		[]way{func(p *site, words []string, _ Fix) {
			if words[1] == p.s.Machine.ServerID && words[2] == p.account.ID {
				p.account.Member = true
				p.account.IPs = []netip.Addr{nodeIP}
				p.e.Network = p.account
			}
		}}},
	{regexp.MustCompile(`^set --uplink to the interface that carries the server's`), []way{
		func(p *site, _ []string, _ Fix) { p.e.Uplink = p.leads }}},
	{regexp.MustCompile(`check the cable and the switch port of (?:each member of \S+ \(([^)]+)\)|(\S+);)`), []way{plug}},
	{regexp.MustCompile(`^(\S+) has no members: add its ports in the configuration`), []way{
		func(p *site, words []string, _ Fix) {
			bond := p.s.LinkNamed(words[1])
			for _, name := range []string{"eno1", "eno2"} {
				p.s.LinkNamed(name).Master = bond.Index
			}
		}}},
	{regexp.MustCompile(`^contact phoenixNAP support: (.*) (?:on|to|behind) (eno.*)$`), []way{support}},
	{regexp.MustCompile(`^ip link set (\S+) up$`), []way{
		func(p *site, words []string, _ Fix) { p.s.LinkNamed(words[1]).Up = true }}},
	{regexp.MustCompile(`set --interface to (?:the interface with VLAN ID (\d+)|(\S+), which has VLAN ID \d+), or omit`),
		[]way{
			func(p *site, words []string, _ Fix) { p.e.Interface = words[2] + p.withID(words[1]) },
			func(p *site, _ []string, _ Fix) { p.e.Interface = "" },
		}},
	{regexp.MustCompile(`^two servers carry (\S+): compare the addresses of the servers in network (\S+) and change one`),
		[]way{
			func(p *site, words []string, _ Fix) {
				maps.DeleteFunc(p.strangers, func(_ string, a netip.Addr) bool { return a.String() == words[1] })
			},
			func(p *site, words []string, _ Fix) {
				other := netip.MustParseAddr("192.0.2.4")
				p.change(editAddress(netip.MustParseAddr(words[1]), func(a *Address) {
					a.Prefix = netip.PrefixFrom(other, a.Prefix.Bits())
				}), editARP(netip.MustParseAddr(words[1]), func(a *ARPAnswer) { a.Target = other }))
				p.e.Network.IPs = []netip.Addr{other}
			},
		}},
	{regexp.MustCompile(`^assign an address of one of the blocks ([^,]+), .*, then configure it on (\S+)$`),
		[]way{func(p *site, words []string, _ Fix) {
			address := netip.MustParsePrefix(words[1]).Addr().Next().Next()
			p.account.IPs = []netip.Addr{address}
			p.e.Network.IPs = p.account.IPs
			p.change(addAddress(p.s.LinkNamed(words[2]).Index, fmt.Sprintf("%s/28", address)))
		}}},
	{regexp.MustCompile(`^list (\S+) among the server's addresses in network (\S+), so`), []way{
		func(p *site, words []string, _ Fix) {
			p.e.Network.IPs = append(p.e.Network.IPs, netip.MustParseAddr(words[1]))
		}}},
	{regexp.MustCompile(`^delete the address, route or rule that takes the block away from (\S+)$`), []way{takeBack}},
	{regexp.MustCompile(`^frames of VLAN \d+ must arrive on \S+; .* server (\S+) is an assigned member of network ` +
		`(\S+) and that block (\S+) is assigned to it$`), []way{func(p *site, words []string, _ Fix) {
		if p.unassigned.String() == words[3] && words[2] == p.account.ID {
			p.unassigned = netip.Prefix{}
		}
	}}},
	{regexp.MustCompile(`^ARP requests need the capability NET_RAW`), []way{allow("operation not permitted")}},
	{regexp.MustCompile(`^look again: \S+ may have changed`), []way{allow("network is down")}},
	{regexp.MustCompile(`^find the machine .* hardware addresses with those .*, and remove it there$`), []way{
		func(p *site, _ []string, _ Fix) { clear(p.strangers) }}},
	{regexp.MustCompile(`^check for a flood of packets on the VLAN and for busy CPUs`), []way{
		func(p *site, _ []string, _ Fix) { p.flooded = false }}},
	{regexp.MustCompile(`^set free bits on the agents of all nodes, such as --mark=(\S+)$`), []way{mark}},
	{regexp.MustCompile(`^on this node all bits are in use: free some of .*, or run the agents without --manage=`), []way{
		func(p *site, _ []string, _ Fix) {
			p.s.Rules = slices.DeleteFunc(p.s.Rules, func(r Rule) bool { return r.Mask == math.MaxUint32 })
		},
		func(p *site, _ []string, _ Fix) {
			p.e.Mask = 0
		},
	}},
	{regexp.MustCompile(`^sysctl -p \S+$`), []way{load}},
	{regexp.MustCompile(`^set ipvs.strictARP: true in the configuration of kube-proxy$`), []way{
		func(p *site, _ []string, _ Fix) {
			p.s.Settings["all"]["arp_ignore"] = 1
			p.s.Settings["all"]["arp_announce"] = 2
		}}},
	{regexp.MustCompile(`^either make (\S+) the node's default gateway, or run the agent with --manage=return-path, or`),
		[]way{makeDefault, func(p *site, _ []string, _ Fix) {
			p.s.Rules = goodNode().Rules
			p.s.Tables = goodNode().Tables
			p.change(managing)
		}}},
	{regexp.MustCompile(`each must be followed by its reply; otherwise .*: make the gateway of the public network the ` +
		`default gateway$`), []way{func(p *site, _ []string, fix Fix) {
		makeDefault(p, []string{"", p.e.Network.Blocks[0].Gateway.String()}, fix)
	}}},
}

// allow ends one reason for which the kernel refuses ARP requests.
func allow(refusal string) way {
	return func(p *site, _ []string, _ Fix) { p.refusal = strings.TrimPrefix(p.refusal, refusal) }
}

// register corrects of which Node the agent is, or has both machines register again under names of their own.
func register(p *site, _ []string, _ Fix) {
	p.e.Network.ServerID = p.s.Machine.ServerID
	p.e.NodeAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.11"), nodeIP}
}

// plug restores the link of the network cards that a sentence names.
func plug(p *site, words []string, _ Fix) {
	for _, name := range strings.Split(words[1]+words[2], ", ") {
		delete(p.unplugged, name)
	}
}

// support does what phoenixNAP can do to the members that a sentence names, for what it says about them.
func support(p *site, words []string, _ Fix) {
	for _, name := range strings.Split(words[2], ", ") {
		switch {
		case strings.HasPrefix(words[1], "there is no working link"):
			delete(p.unplugged, name)
			p.change(editSlave(name, func(s *Slave) { s.Up = true }))
		case strings.HasPrefix(words[1], "no LACP comes from the switch"):
			p.change(editSlave(name, func(s *Slave) { s.NoPartner = false }),
				editBond(func(b *Bond) { b.PartnerMAC = "00:1c:73:00:00:01" }))
		case strings.HasPrefix(words[1], "another switch"):
			p.change(editSlave(name, func(s *Slave) { s.Aggregator = 1 }))
		default:
		}
	}
}

// withID returns the name of the interface with a VLAN ID; empty without one.
func (p *site) withID(raw string) string {
	id, err := strconv.Atoi(raw)
	if l := p.s.link(func(l Link) bool { return l.VLAN != nil && l.VLAN.ID == id }); err == nil && l != nil {
		return l.Name
	}
	return ""
}

// takeBack deletes from all other interfaces what overlaps a block.
func takeBack(p *site, words []string, _ Fix) {
	own := p.s.LinkNamed(words[1]).Index
	taken := func(prefix netip.Prefix) bool {
		return prefix.Bits() > 0 && slices.ContainsFunc(p.e.Network.Blocks,
			func(b contract.NetworkBlock) bool { return b.CIDR.Overlaps(prefix) })
	}
	p.s.Addresses = slices.DeleteFunc(p.s.Addresses,
		func(a Address) bool { return a.LinkIndex != own && taken(a.Prefix) })
	for table, routes := range p.s.Tables {
		p.s.Tables[table] = slices.DeleteFunc(routes,
			func(r Route) bool { return r.LinkIndex != own && taken(r.Destination) })
	}
	p.s.Rules = slices.DeleteFunc(p.s.Rules, func(r Rule) bool { return taken(r.Destination) })
}

// mark sets the mark of the agent, whose own rules then have it.
func mark(p *site, words []string, _ Fix) {
	mask, err := strconv.ParseUint(words[1], 0, 32)
	if err != nil {
		panic(err)
	}
	p.e.Mask = uint32(mask)
	for i := range p.s.Rules {
		if r := &p.s.Rules[i]; r.Protocol == ManagedProtocol {
			r.Mask = p.e.Mask
			r.Mark = p.e.Mask & -p.e.Mask
		}
	}
}

// load reads a file of sysctl.d(5), in which a name has slashes.
func load(p *site, _ []string, fix Fix) {
	for _, line := range strings.Split(strings.TrimSpace(fix.Content), "\n") {
		path, value, _ := strings.Cut(line, " = ")
		keys := strings.Split(path, "/")
		n, err := strconv.Atoi(value)
		if err != nil || len(keys) != 5 || p.s.Settings[keys[3]] == nil {
			panic("not a line that sysctl reads: " + line)
		}
		p.s.Settings[keys[3]][keys[4]] = n
	}
}

func makeDefault(p *site, words []string, _ Fix) {
	p.change(removeDefault)
	p.s.Tables[TableMain] = append(p.s.Tables[TableMain], Route{Destination: everywhere,
		Gateway: netip.MustParseAddr(words[1]), LinkIndex: p.s.LinkNamed("bond0.100").Index, Type: "unicast"})
}

// adviceCases are the cases for which advice is printed that is the same whatever configures the network.
var adviceCases = map[string]struct {
	reason string
	make   func(p *site)
	// each: the commands and the note of a fix are alternatives. notes: only the notes are followed here, for the files
	// are read by a kernel in another test.
	each, notes bool
	// then is the reason of the finding that comes next, which has its own fix; empty when all is healthy.
	then string
}{
	"no API server": {reason: "APIServerNotReached", each: true, make: func(p *site) { p.e.Unreached = true }},
	"annotation cannot be read": {reason: "NetworkUnreadable", make: func(p *site) {
		p.annotations = map[string]string{
			contract.NodePublicNetworks: `[{"name":"default","id":"n","vlan":"hundred"}]`}
	}},
	"no controller": {reason: "WaitingForController", make: func(p *site) {
		p.annotations = map[string]string{}
		p.controller.stopped = true
	}},
	"a controller without load balancer": {reason: "WaitingForController", make: func(p *site) {
		p.annotations = map[string]string{}
		p.controller.withoutBalancer = true
	}},
	"the server is not found": {reason: "WaitingForController", make: func(p *site) {
		p.annotations = map[string]string{}
		p.controller.withoutServer = true
	}},
	"another server": {reason: "OtherServer", make: func(p *site) { p.e.Network.ServerID = "ffffffffffffffffffffffff" }},
	"another machine": {reason: "OtherMachine", make: func(p *site) {
		p.s.Machine.ServerID = ""
		p.e.NodeAddresses = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	}},
	"no member": {reason: "NotAMember", make: func(p *site) {
		p.account.Member = false
		p.e.Network = p.account
	}},
	"--uplink is not there": {reason: "UplinkMissing", make: func(p *site) { p.e.Uplink = "bond9" }},
	"no bond": {reason: "UplinkMissing", then: "VLANInterfaceMissing", make: func(p *site) {
		inject("uplink missing")(p)
		p.leads = "eno1"
	}},
	"two bonds": {reason: "UplinkAmbiguous", then: "AddressMissing", make: inject("several uplinks")},
	"cables of a bond": {reason: "UplinkNoCarrier", make: func(p *site) {
		p.unplugged["eno1"] = true
		p.unplugged["eno2"] = true
	}},
	"a bond without ports": {reason: "UplinkNoCarrier", make: func(p *site) {
		p.change(editLink("eno1", func(l *Link) { l.Master = 0 }), editLink("eno2", func(l *Link) { l.Master = 0 }))
	}},
	"both members set down": {reason: "UplinkNoCarrier", notes: true, make: func(p *site) {
		p.unplugged["eno1"] = true
		p.change(editLink("eno2", func(l *Link) { l.Up = false }))
	}, then: "BondDegraded"},
	"a cable of a bond":      {reason: "BondDegraded", make: func(p *site) { p.unplugged["eno2"] = true }},
	"a member set down":      {reason: "BondDegraded", make: inject("bond degraded")},
	"a member called down":   {reason: "BondDegraded", make: inject("member called down")},
	"a switch without LACP":  {reason: "NoLACPPartner", make: inject("no LACP partner")},
	"a port without LACP":    {reason: "MemberWithoutPartner", make: inject("member without partner")},
	"a member elsewhere":     {reason: "AggregatorsDiffer", make: inject("members of two switches")},
	"--interface is no VLAN": {reason: "NotAVLANInterface", make: inject("named interface is no VLAN")},
	"--interface is missing": {reason: "VLANInterfaceMissing", make: inject("named interface is not there")},
	"cables, seen late": {reason: "VLANInterfaceNoCarrier", make: func(p *site) {
		p.unplugged["eno1"] = true
		p.unplugged["eno2"] = true
		p.late = true
	}},
	"an address of two servers": {reason: "AddressInUse", make: func(p *site) { p.strangers[stranger] = nodeIP }},
	"no address at all": {reason: "AddressMissing", make: func(p *site) {
		p.account.IPs = nil
		p.e.Network.IPs = nil
		p.change(removeAddress(nodeIP))
	}},
	"an address that is not listed": {reason: "AddressNotRegistered", make: func(p *site) {
		p.e.Network.IPs = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	}},
	"a route for the block":    {reason: "GatewayRoutedElsewhere", make: inject("block taken by a route")},
	"a rule against the block": {reason: "GatewayUnroutable", make: inject("gateway refused by a route")},
	"the network's block is not assigned": {reason: "GatewaySilent", make: func(p *site) {
		p.unassigned = p.account.Blocks[0].CIDR
	}},
	"another block is not assigned": {reason: "GatewaySilent", make: func(p *site) {
		p.unassigned = p.account.Blocks[1].CIDR
	}},
	"not root":         {reason: "GatewayNotAsked", make: func(p *site) { p.refusal = "operation not permitted" }},
	"it went down":     {reason: "GatewayNotAsked", make: func(p *site) { p.refusal = "network is down" }},
	"a second gateway": {reason: "GatewayAnsweredTwice", make: func(p *site) { p.strangers[stranger] = gateway }},
	"a flood":          {reason: "GatewaySlow", make: func(p *site) { p.flooded = true }},
	"a foreign rule":   {reason: "MarkClash", make: inject("mark of a foreign rule")},
	"bits of Calico":   {reason: "MarkClash", make: inject("mark of Calico")},
	"bits in use": {reason: "MarkClash", make: func(p *site) {
		p.change(managing)
		p.s.Rules = append(p.s.Rules, Rule{Priority: 500, Mark: 0x20ff, Mask: 0x20ff, Table: TableMain})
	}},
	"all bits in use": {reason: "MarkClash", make: func(p *site) {
		p.change(managing)
		p.s.Rules = append(p.s.Rules, Rule{Priority: 500, Mark: math.MaxUint32, Mask: math.MaxUint32, Table: TableMain})
	}},
	"no sender of its own":    {reason: "ARPSourceForeign", make: inject("sender borrowed")},
	"IPVS":                    {reason: "StrictARPMissing", make: inject("IPVS without strict ARP")},
	"no rule by mark":         {reason: "ServiceRepliesElsewhere", notes: true, make: inject("no rule by mark")},
	"an unknown eBPF program": {reason: "ReturnPathUnverified", make: inject("unknown eBPF program")},
	"Cilium":                  {reason: "ReturnPathUnverified", make: inject("Cilium")},
}

// inject makes one of the faults of the other tests.
func inject(fault string) func(*site) { return func(p *site) { p.change(faults()[fault].inject) } }

const stranger = "02:00:00:00:00:66"

// sentence is a note or a command of a fix.
type sentence struct {
	text string
	fix  Fix
}

// advice returns what a person may follow: the sentences of one fix together, or one of them where they are
// alternatives.
func advice(f Finding, each, notes bool) (all [][]sentence) {
	for _, fix := range f.Fixes {
		var sentences []sentence
		for _, text := range append(slices.Clone(fix.Commands), fix.Note) {
			if text != "" && text != volatile {
				sentences = append(sentences, sentence{text, fix})
			}
		}
		switch {
		case notes && fix.File != "":
		case fix.Tool != AnyTool && f.Reason != "BondDegraded" && f.Reason != "UplinkNoCarrier":
		case each:
			for _, one := range sentences {
				all = append(all, []sentence{one})
			}
		default:
			all = append(all, sentences)
		}
	}
	return all
}

// follow does in one of several ways what the sentences say. It returns how many ways there are, zero when none of them
// says what to do.
func (p *site) follow(t *testing.T, sentences []sentence, choice int) (choices int) {
	t.Helper()
	for _, one := range sentences {
		// A note beside a command that was followed says what else there is to do, such as to make it last.
		known := commandsOfFixes["shows something"].MatchString(one.text) || one.text == one.fix.Note && choices > 0
		for _, practice := range practices {
			if words := practice.says.FindStringSubmatch(one.text); words != nil {
				known = true
				choices = max(choices, len(practice.ways))
				practice.ways[min(choice, len(practice.ways)-1)](p, words, one.fix)
			}
		}
		if !known {
			t.Errorf("the test cannot follow %q", one.text)
		}
	}
	return choices
}

// TestAdviceRemovesItsFinding: whoever does what a finding says, in each way that it offers, and when the fault has the
// cause that it names, is rid of it, and of nothing that worked.
func TestAdviceRemovesItsFinding(t *testing.T) {
	if first, bad := newSite().observe().FirstCause(); bad {
		t.Fatalf("the site is not healthy: %+v", first)
	}
	for name, tc := range adviceCases {
		t.Run(name, func(t *testing.T) {
			faulty := func() (p *site, f Finding) {
				p = newSite()
				tc.make(p)
				p.finding = findReason(p.observe(), tc.reason)
				return p, p.finding
			}
			_, found := faulty()
			all := advice(found, tc.each, tc.notes)
			if len(all) == 0 {
				t.Fatalf("%s says nothing that can be followed: %+v", tc.reason, found)
			}
			for _, sentences := range all {
				choices := 1
				for choice := 0; choice < choices; choice++ {
					p, _ := faulty()
					if choices = p.follow(t, sentences, choice); choices == 0 {
						t.Errorf("%q says nothing that can be followed", sentences)
					}
					report := p.observe()
					if rest := findReason(report, tc.reason); rest.Reason != "" {
						t.Errorf("way %d of %q leaves %s: %s", choice, texts(sentences), rest.Reason, rest.Observed)
					}
					if first, bad := report.FirstCause(); bad && first.Status != Warn && first.Reason != tc.then {
						t.Errorf("after %q comes %s: %s", texts(sentences), first.Reason, first.Cause)
					}
				}
			}
		})
	}
}

func texts(sentences []sentence) (all []string) {
	for _, one := range sentences {
		all = append(all, one.text)
	}
	return all
}

// findReason returns the finding with a reason; a zero one when there is none.
func findReason(r Report, reason string) Finding {
	f, _ := first(r.Findings, func(f Finding) bool { return f.Reason == reason && f.Status != OK && f.Status != Skip })
	return f
}
