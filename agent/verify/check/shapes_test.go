package check

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// carried returns a VLAN interface with the ID of the network on another link.
func carried(index int, name string, parent, id int) Link {
	return Link{Index: index, Name: name, Type: "vlan", Parent: parent, MTU: 1500,
		VLAN: &VLAN{ID: id, Protocol: "802.1q"}}
}

// bridged makes vmbr0 of the bond and of a virtual machine's port, and puts bond0's VLAN interfaces on it.
func bridged(e *Expected, s *Snapshot) {
	both(
		addLink(Link{Index: 50, Name: "vmbr0", Type: "bridge", MAC: "02:00:00:00:00:01", MTU: 9000}),
		addLink(Link{Index: 51, Name: "tap101i0", Type: "tun", MAC: "02:00:00:00:00:51", MTU: 1500, Master: 50}),
		editLink("bond0", func(l *Link) { l.Master = 50 }),
		editLink("bond0.11", func(l *Link) { l.Parent = 50 }),
		editLink("bond0.100", func(l *Link) { l.Parent = 50 }),
	)(e, s)
}

// hypervisor gives virtual machines the public network by a bridge over the VLAN interface, which has the node's
// address and the default route, too.
func hypervisor(e *Expected, s *Snapshot) {
	both(
		addLink(Link{Index: 50, Name: "br100", Type: "bridge", MAC: "02:00:00:00:00:01", MTU: 1500}),
		addLink(Link{Index: 51, Name: "vnet0", Type: "tun", MTU: 1500, Master: 50}),
		editLink("bond0.100", func(l *Link) { l.Master = 50 }),
		editAddress(nodeIP, func(a *Address) { a.LinkIndex = 50 }),
		setTable(TableMain, Route{Destination: everywhere, Gateway: gateway, LinkIndex: 50, Type: "unicast"}),
	)(e, s)
}

// storage is a second bond that leads to another switch, whose networks have VLAN IDs of their own.
func storage(e *Expected, s *Snapshot) {
	both(
		addLink(Link{Index: 60, Name: "bond1", Type: "bond", MAC: "02:00:00:00:00:60", MTU: 9000,
			Bond: &Bond{Mode: modeLACP, PartnerMAC: "00:1c:73:00:00:60", Aggregator: 1}}),
		addLink(Link{Index: 61, Name: "eno3", Type: "device", MTU: 9000, Master: 60,
			Slave: &Slave{Up: true, Aggregator: 1}}),
		addLink(carried(62, "bond1.100", 60, testVLAN), "10.60.0.2/24"),
	)(e, s)
}

// healthyShapes are machines that work, as people and installers set them up.
func healthyShapes() map[string]func(*Expected, *Snapshot) {
	return map[string]func(*Expected, *Snapshot){
		"VLAN on a bridge over the bond": bridged,
		"VLAN on a bridge that filters VLANs": both(bridged,
			editLink("vmbr0", func(l *Link) { l.VLANAware = true })),
		"VLAN on the bond below a bridge": both(bridged, editLink("bond0.100", func(l *Link) { l.Parent = 4 })),
		"VLAN on a bridge over a card": both(bridged, removeLink("bond0"),
			editLink("eno1", func(l *Link) { l.Master = 50; l.Slave = nil }),
			editLink("eno2", func(l *Link) { l.Master = 0; l.Slave = nil })),
		"VLAN on a card": both(removeLink("bond0"), editLink("eno1", func(l *Link) { l.Master = 0; l.Slave = nil }),
			editLink("eno2", func(l *Link) { l.Master = 0; l.Slave = nil }),
			editLink("bond0.11", func(l *Link) { l.Parent = 2 }),
			editLink("bond0.100", func(l *Link) { l.Parent = 2 })),
		"a storage network with the same ID": storage,
		"the other bond sorts first": both(storage, editLink("bond1", func(l *Link) { l.Name = "a-storage" }),
			editLink("bond1.100", func(l *Link) { l.Name = "a-storage.100" })),
		"an inner VLAN with the same ID": addLink(carried(63, "bond0.11.100", 5, testVLAN), "10.63.0.2/24"),
		"a MACVLAN with a VLAN": both(
			addLink(Link{Index: 64, Name: "macvlan0", Type: "macvlan", MAC: "02:00:00:00:00:64", Parent: 4}),
			addLink(carried(65, "macvlan0.100", 64, testVLAN), "10.65.0.2/24")),
		// phoenixNAP's template for Cluster API: the address of the API server, in a /31, is on lo, and kube-vip
		// advertises it by BGP.
		"an address announced by BGP": addAddress(1, "198.51.100.8/32"),
		"a bridge of Open vSwitch": both(
			addLink(Link{Index: 66, Name: "ovs-system", Type: "openvswitch"}),
			addLink(Link{Index: 67, Name: "vmbr0", Type: "openvswitch", MAC: "02:00:00:00:00:01", MTU: 9000}),
			editLink("bond0", func(l *Link) { l.Master = 66 }),
			editLink("bond0.11", func(l *Link) { l.Parent = 67 }),
			editLink("bond0.100", func(l *Link) { l.Parent = 67 })),
	}
}

// TestHealthyShapes: what works is reported as healthy, and no fix of a warning takes anything of it away.
func TestHealthyShapes(t *testing.T) {
	for name, shape := range healthyShapes() {
		t.Run(name, func(t *testing.T) {
			e, s := nodeWith(shape)
			report := Evaluate(e, s)
			if report.Interface != "bond0.100" || report.Outcome().Status != OK {
				t.Errorf("interface %q, %+v", report.Interface, report.Outcome())
			}
			for _, f := range report.Findings {
				if f.Status == Warn || f.Status == Fail {
					t.Errorf("%s %s %s: %s, fixes %+v", f.ID, f.Status, f.Reason, f.Cause, f.Fixes)
				}
			}
		})
	}
}

// TestNothingOfAnotherNetworkIsTaken: with every fault on every shape, no fix deletes an interface that is not on the
// trunk of the network, nor one that is a port or below another link, and none such is taken for the network's.
func TestNothingOfAnotherNetworkIsTaken(t *testing.T) {
	foreign := []string{"bond1.100", "a-storage.100", "bond0.11.100", "macvlan0.100"}
	shapes := healthyShapes()
	shapes["virtual machines in the network"] = hypervisor
	for shape, build := range shapes {
		for name, f := range faults() {
			if strings.HasPrefix(name, "named") { // the person's choice
				continue
			}
			e, s := nodeWith(build, f.inject)
			report := Evaluate(e, s)
			if slices.Contains(foreign, report.Interface) {
				t.Errorf("%s, %s: %s is taken for the network's", shape, name, report.Interface)
			}
			for _, found := range report.Findings {
				for _, fix := range found.Fixes {
					for _, command := range fix.Commands {
						gone, deletes := strings.CutPrefix(command, "ip link delete ")
						if l := s.LinkNamed(gone); deletes && (slices.Contains(foreign, gone) ||
							l == nil || l.VLAN == nil ||
							l.Master != 0) {
							t.Errorf("%s, %s: %s %s prints %q", shape, name, found.ID, found.Reason, command)
						}
					}
				}
			}
		}
	}
}

// TestBridgeIsGivenTheVLAN: a bridge that filters VLANs passes the network's only once it has it.
func TestBridgeIsGivenTheVLAN(t *testing.T) {
	e, s := nodeWith(bridged, editLink("vmbr0", func(l *Link) { l.VLANAware = true }), removeLink("bond0.100"))
	f := Evaluate(e, s).Finding(VLANInterface)
	i := slices.IndexFunc(f.Fixes, func(fix Fix) bool { return fix.Tool == IPRoute2 })
	want := []string{"ip link add link vmbr0 name vmbr0.100 type vlan id 100", "ip link set vmbr0.100 mtu 1500 up",
		"ip address add 192.0.2.2/28 dev vmbr0.100", "bridge vlan add vid 100 dev vmbr0 self",
		"bridge vlan add vid 100 dev bond0"}
	if i < 0 || !slices.Equal(f.Fixes[i].Commands, want) {
		t.Errorf("%s, fixes %+v, want the commands %q", f.Reason, f.Fixes, want)
	}
}

// connection is what commands leave of the addresses and default routes of a machine.
type connection struct {
	s         Snapshot
	addresses map[string][]string // by link
	defaults  map[string]bool     // links with a default route
}

func connectionOf(s Snapshot) connection {
	c := connection{s: s, addresses: map[string][]string{}, defaults: map[string]bool{}}
	for _, a := range s.Addresses {
		if l := s.LinkIndexed(a.LinkIndex); l != nil && a.Prefix.Addr().Is4() {
			c.addresses[l.Name] = append(c.addresses[l.Name], a.Prefix.String())
		}
	}
	for _, r := range s.Tables[TableMain] {
		if l := s.LinkIndexed(r.LinkIndex); l != nil && r.Destination.Bits() == 0 {
			c.defaults[l.Name] = true
		}
	}
	return c
}

// run does to the connection what a kernel does after a command of iproute2; what others do is theirs.
func (c connection) run(command string) {
	words := strings.Fields(command)
	at := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch at(0) + " " + at(1) + " " + at(2) {
	case "ip link delete":
		c.lose(at(3))
	case "ip link set":
		if l := c.s.LinkNamed(at(3)); at(4) == "nomaster" && l != nil {
			if master := c.s.LinkIndexed(l.Master); master != nil {
				c.lose(master.Name) // what it has is cut off
			}
		}
	case "ip address add":
		c.addresses[at(5)] = append(c.addresses[at(5)], at(3))
	case "ip address delete":
		c.addresses[at(5)] = slices.DeleteFunc(c.addresses[at(5)], func(a string) bool { return a == at(3) })
		if len(c.addresses[at(5)]) == 0 {
			c.lose(at(5))
		}
	case "ip route replace":
		if at(3) == "default" && !strings.Contains(command, " table ") {
			c.defaults[at(7)] = true
		}
	}
}

func (c connection) lose(link string) {
	delete(c.addresses, link)
	delete(c.defaults, link)
}

// has reports whether any link has an address, with whatever prefix length.
func (c connection) has(addr netip.Addr) bool {
	for _, on := range c.addresses {
		if slices.ContainsFunc(on, func(a string) bool { return strings.HasPrefix(a, addr.String()+"/") }) {
			return true
		}
	}
	return false
}

// written reports whether a tool other than iproute2 is given an address, in its file or its command.
func written(fix Fix, addr netip.Addr) bool {
	return strings.Contains(fix.Content, addr.String()+"/") || slices.ContainsFunc(fix.Commands, func(c string) bool {
		return !strings.HasPrefix(c, "ip ") && strings.Contains(c, addr.String()+"/")
	})
}

// TestFixesKeepTheConnection: with every fault on every shape, each fix leaves the machine the addresses of the network
// that it had, and a default route, or says before its commands what they take away.
func TestFixesKeepTheConnection(t *testing.T) {
	shapes := healthyShapes()
	shapes["as delivered"] = func(*Expected, *Snapshot) {}
	shapes["virtual machines in the network"] = hypervisor
	shapes["default route by the network"] = setTable(TableMain, Route{Destination: everywhere, Gateway: gateway,
		LinkIndex: 6, Type: "unicast"})
	warned := 0
	for shape, build := range shapes {
		for name, f := range faults() {
			e, s := nodeWith(build, f.inject)
			for _, found := range Evaluate(e, s).Findings {
				for _, fix := range found.Fixes {
					c := connectionOf(s)
					had := len(c.defaults) > 0
					for _, command := range fix.Commands {
						c.run(command)
					}
					var lost []string
					for _, a := range s.Addresses {
						if v := (view{Expected: e, Snapshot: s}); v.ofNetwork(a) && !e.isGateway(a.Prefix.Addr()) &&
							!c.has(a.Prefix.Addr()) && !written(fix, a.Prefix.Addr()) {
							lost = append(lost, a.Prefix.String())
						}
					}
					if had && len(c.defaults) == 0 {
						lost = append(lost, "the default route")
					}
					if len(lost) > 0 && fix.Warning == "" {
						t.Errorf("%s, %s: the fix of %s %s with %s takes %s away and does not say so:\n%s", shape, name,
							found.ID, found.Reason, fix.Tool, strings.Join(lost, " and "),
							strings.Join(fix.Commands, "\n"))
					}
					if fix.Warning != "" {
						warned++
					}
				}
			}
		}
	}
	if warned == 0 {
		t.Error("no fix takes anything away: the test shows nothing")
	}
}

// anyTrunks is a machine with several ways to several switches. It returns the trunk that leads to the network, as the
// address of the network or the default route proves; empty where neither does.
func anyTrunks(random *rand.Rand) (s Snapshot, proven string) {
	s = Snapshot{Tables: map[int][]Route{}, Settings: map[string]Settings{"all": {}}}
	add := func(l Link) Link {
		l.Index = len(s.Links) + 1
		l.Up = true
		l.LowerUp = true
		l.OperState = "up"
		s.Links = append(s.Links, l)
		return l
	}
	type place struct {
		link  Link
		trunk string
		// direct reports that VLAN interfaces of the trunk may be there.
		direct bool
	}
	var places []place
	for i := range 1 + random.IntN(3) {
		trunk := Link{Name: fmt.Sprintf("eno%d", i), Type: "device"}
		if random.IntN(3) > 0 {
			trunk = Link{Name: fmt.Sprintf("bond%d", i), Type: "bond", Bond: &Bond{Mode: modeLACP}}
		}
		bridge := Link{}
		if random.IntN(3) == 0 {
			bridge = add(Link{Name: fmt.Sprintf("vmbr%d", i), Type: "bridge", VLANAware: random.IntN(2) == 0})
			trunk.Master = bridge.Index
		}
		trunk = add(trunk)
		places = append(places, place{trunk, trunk.Name, true})
		if bridge.Name != "" {
			places = append(places, place{bridge, trunk.Name, true})
		}
		if random.IntN(3) == 0 {
			m := add(Link{Name: fmt.Sprintf("macvlan%d", i), Type: "macvlan", Parent: trunk.Index})
			places = append(places, place{m, trunk.Name, false})
		}
	}
	var addressed, routed []string
	for i := range random.IntN(7) {
		at := places[random.IntN(len(places))]
		l := carried(0, fmt.Sprintf("v%d", i), at.link.Index, pick(random, testVLAN, testVLAN, testVLAN, 11))
		l = add(l)
		places = append(places, place{l, at.trunk, false})
		switch random.IntN(6) {
		case 0:
			s.Addresses = append(s.Addresses, Address{LinkIndex: l.Index, Prefix: netip.PrefixFrom(nodeIP, 28)})
			if l.VLAN.ID == testVLAN {
				addressed = append(addressed, at.trunk)
			}
		case 1, 2:
			added := Address{LinkIndex: l.Index, Prefix: netip.MustParsePrefix("10.0.0.11/24")}
			s.Addresses = append(s.Addresses, added)
			if len(routed) == 0 {
				routed = append(routed, at.trunk)
				s.Tables[TableMain] = []Route{{Destination: everywhere, Gateway: netip.MustParseAddr("10.0.0.1"),
					LinkIndex: l.Index, Type: "unicast"}}
			}
		}
	}
	if addressed = sorted(addressed); len(addressed) > 0 {
		routed = addressed
	}
	if len(routed) == 1 {
		return s, routed[0]
	}
	return s, ""
}

// TestUplinkIsProven: whatever a machine has, an interface is taken for the network's, or deleted by a fix, only on the
// trunk that an address of the network or the default route proves, or the only one that there is.
func TestUplinkIsProven(t *testing.T) {
	decided := 0
	asked := 0
	for seed := range uint64(seeds.Count(t, 5000)) {
		random := rand.New(rand.NewPCG(seed, 12))
		s, proven := anyTrunks(random)
		e := expectedNode()
		e.NodeAddresses = nil
		askRoutes(e, &s)
		report := Evaluate(e, s)
		if report.Uplink == "" {
			asked++
			if report.Interface != "" {
				t.Fatalf("seed %d: %s without an uplink", seed, report.Interface)
			}
			continue
		}
		decided++
		under := func(name string) string { return s.under(s.LinkNamed(name)).Name }
		if trunk := under(report.Uplink); proven != "" && trunk != proven {
			t.Fatalf("seed %d: the uplink is %s, but %s is proven", seed, trunk, proven)
		}
		if report.Interface != "" && under(report.Interface) != under(report.Uplink) {
			t.Fatalf("seed %d: %s is not on %s", seed, report.Interface, report.Uplink)
		}
		for _, f := range report.Findings {
			for _, fix := range f.Fixes {
				for _, command := range fix.Commands {
					if gone, deletes := strings.CutPrefix(command, "ip link delete "); deletes {
						parent := s.LinkIndexed(s.LinkNamed(gone).Parent)
						if trunk := s.trunkOf(parent); trunk == nil || trunk.Name != under(report.Uplink) {
							t.Fatalf("seed %d: %s of %s deletes %s on %s", seed, command, f.Reason, gone, parent.Name)
						}
					}
				}
			}
		}
	}
	if decided < 500 || asked < 100 {
		t.Errorf("%d uplinks were found and %d asked for: the starts do not cover both", decided, asked)
	}
}

// TestUplinkDoesNotDependOnOrder: neither does what is asked for.
func TestUplinkDoesNotDependOnOrder(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(healthyShapes())) {
		e, s := nodeWith(healthyShapes()[name], removeDefault, removeAddress(nodeIP))
		want := Evaluate(e, s)
		shuffleAll(rand.New(rand.NewPCG(1, 1)), &e, &s)
		got := Evaluate(e, s)
		if got.Uplink != want.Uplink || got.Finding(UplinkUp).Cause != want.Finding(UplinkUp).Cause {
			t.Errorf("%s: uplink %q, then %q", name, want.Uplink, got.Uplink)
		}
	}
}
