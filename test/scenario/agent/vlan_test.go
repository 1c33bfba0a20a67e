//go:build linux

package agent

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// bareServer is a server as phoenixNAP delivers it: a bond with the private network, and no VLAN of the public network.
func bareServer(t *testing.T, mode netlink.BondMode) *network {
	t.Helper()
	n := newNetwork(t)
	n.makeBond(mode)
	n.addVLAN("bond0", "bond0.11", 11, "10.0.0.2/24")
	n.must("default route", netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.0.0.1")}))
	n.waitUntil("carrier of bond0", 30*time.Second, func() string {
		if n.link("bond0").Attrs().OperState != netlink.OperUp {
			return "bond0 is not up"
		}
		return ""
	})
	return n
}

// makeBond deletes bond0, with all that stands on it, and makes it again.
func (n *network) makeBond(mode netlink.BondMode) {
	n.t.Helper()
	n.must("delete bond0", netlink.LinkDel(n.link("bond0")))
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode = mode
	bond.Miimon = 50
	n.must("add bond0", netlink.LinkAdd(bond))
	n.must("eno1 down", netlink.LinkSetDown(n.link("eno1")))
	n.must("enslave eno1", netlink.LinkSetMaster(n.link("eno1"), n.link("bond0")))
	n.must("bond0 up", netlink.LinkSetUp(n.link("bond0")))
	n.must("eno1 up", netlink.LinkSetUp(n.link("eno1")))
}

// waitUntil waits until nothing is wrong and returns how long that took, without the time that this machine stood
// still: one that is busy with other things says nothing of the reconciler.
func (n *network) waitUntil(what string, limit time.Duration, wrong func() string) time.Duration {
	n.t.Helper()
	const look = 50 * time.Millisecond // more than a look takes, and the pause between two
	var stalled time.Duration
	begun := time.Now()
	for last := begun; ; {
		complaint := wrong()
		took := time.Since(begun) - stalled
		if complaint == "" {
			return took
		}
		if took > limit {
			n.t.Fatalf("%s: after %s (and %s of standstill) %s", what, took, stalled, complaint)
		}
		time.Sleep(10 * time.Millisecond)
		stalled += max(0, time.Since(last)-look)
		last = time.Now()
	}
}

// amiss returns what is wrong with the node's VLAN interface; empty when it is as expected.
func (n *network) amiss(name string, e check.Expected, addresses ...string) string {
	n.t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err.Error()
	}
	v, is := link.(*netlink.Vlan)
	a := link.Attrs()
	parent, err := netlink.LinkByName("bond0")
	switch {
	case err != nil:
		return err.Error()
	case !is || v.VlanId != e.Network.VLAN || v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q ||
		a.ParentIndex != parent.Attrs().Index:
		return fmt.Sprintf("%s is %+v", name, link)
	case a.MTU != 1500 || a.Flags&net.FlagUp == 0:
		return fmt.Sprintf("%s has MTU %d and flags %s", name, a.MTU, a.Flags)
	case a.HardwareAddr.String() != parent.Attrs().HardwareAddr.String():
		return fmt.Sprintf("%s has the hardware address %s, bond0 has %s", name, a.HardwareAddr,
			parent.Attrs().HardwareAddr)
	}
	if got := n.addresses(link); !slices.Equal(got, addresses) {
		return fmt.Sprintf("%s has the addresses %q, want %q", name, got, addresses)
	}
	for key, value := range map[string]string{"rp_filter": "2", "arp_announce": "2", "arp_filter": "0",
		"promote_secondaries": "1", "proxy_arp": "0"} {
		if got := n.setting(name, key); got != value {
			return fmt.Sprintf("%s of %s is %s, want %s", key, name, got, value)
		}
	}
	return ""
}

func (n *network) addresses(link netlink.Link) []string {
	list, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return []string{err.Error()}
	}
	var texts []string
	for _, a := range list {
		texts = append(texts, a.IPNet.String())
	}
	slices.Sort(texts)
	return texts
}

func (n *network) setting(name, key string) string {
	raw, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", name, key))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(raw))
}

// photograph lists what the clean-up must not leave or take: links, addresses, routes, rules, settings.
func (n *network) photograph() []string {
	n.t.Helper()
	var lines []string
	links, err := netlink.LinkList()
	n.must("list links", err)
	for _, l := range links {
		a := l.Attrs()
		lines = append(lines, fmt.Sprintf("link %d %s %s alias %q group %d parent %d master %d mtu %d mac %s up %t",
			a.Index, a.Name, l.Type(), a.Alias, a.Group, a.ParentIndex, a.MasterIndex, a.MTU, a.HardwareAddr,
			a.Flags&net.FlagUp != 0))
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		n.must("list addresses", err)
		for _, address := range addresses {
			if address.IP.IsLinkLocalUnicast() && address.IP.To4() == nil {
				continue // the kernel's own, which come and go with the carrier
			}
			lines = append(lines, fmt.Sprintf("address %s %s scope %d", a.Name, address.IPNet, address.Scope))
		}
		files, err := filepath.Glob(filepath.Join("/proc/sys/net/ipv4/conf", a.Name, "*"))
		n.must("list settings", err)
		for _, f := range files {
			lines = append(lines, "setting "+a.Name+" "+filepath.Base(f)+" "+n.setting(a.Name, filepath.Base(f)))
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	n.must("list routes", err)
	for _, r := range routes {
		lines = append(lines, fmt.Sprintf("route %s", r))
	}
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	n.must("list rules", err)
	for _, r := range rules {
		lines = append(lines, fmt.Sprintf("rule %s", r))
	}
	slices.Sort(lines)
	return lines
}

func (n *network) cleanUp() {
	n.t.Helper()
	_, err := vlan.Cleanup(n.t.Context(), vlan.System{Journal: &ownership.Journal{}})
	n.must("clean up", err)
}

// mustBe compares with a photograph.
func (n *network) mustBe(before []string) {
	n.t.Helper()
	if diff := cmp.Diff(before, n.photograph()); diff != "" {
		n.t.Errorf("after the clean-up (-before +after):\n%s", diff)
	}
}

const ownAddress = "192.0.2.2/28"

// TestBareServerIsConfigured: from nothing to a node that every check calls healthy, and back, as the user otherUID
// with two capabilities.
func TestBareServerIsConfigured(t *testing.T) {
	for name, mode := range map[string]netlink.BondMode{"802.3ad": netlink.BOND_MODE_802_3AD,
		"active-backup": netlink.BOND_MODE_ACTIVE_BACKUP} {
		t.Run(name, func(t *testing.T) {
			n := bareServer(t, mode)
			before := n.photograph()
			k := startVLANReconciler(n, 0)
			e := expected()
			k.expect(e)
			n.waitUntil("the interface", 30*time.Second, func() string { return n.amiss(nodeVIF, e, ownAddress) })
			n.waitForCarrier()
			_, report := n.look(e)
			for _, id := range []check.ID{check.VLANInterface, check.VLANUp, check.MTU, check.NodeAddress,
				check.NoDuplicate, check.GatewayAnswers, check.ReversePath, check.ARPAnswering, check.ARPSource} {
				if f := report.Finding(id); f.Status != check.OK {
					t.Errorf("%s is %s %s: %s (%s)", id, f.Status, f.Because, f.Cause, f.Observed)
				}
			}
			n.waitUntil("the event", 30*time.Second, func() string {
				if !k.reported(vlan.ReasonConfigured) {
					return "none was reported"
				}
				return ""
			})
			k.kill()
			n.cleanUp()
			n.mustBe(before)
		})
	}
}

// TestRepairs disturbs the interface in every way that the kernel reports; each is repaired.
func TestRepairs(t *testing.T) {
	n := bareServer(t, netlink.BOND_MODE_ACTIVE_BACKUP)
	k := startVLANReconciler(n, 0)
	e := expected()
	k.expect(e)
	right := func() string { return n.amiss(nodeVIF, e, ownAddress) }
	n.waitUntil("the interface", 30*time.Second, right)
	var slowest time.Duration
	for _, tc := range []struct {
		name    string
		disturb func()
	}{
		{"interface deleted", func() { n.must("delete", netlink.LinkDel(n.link(nodeVIF))) }},
		{"interface down", func() { n.must("down", netlink.LinkSetDown(n.link(nodeVIF))) }},
		{"bond down and up", func() {
			n.must("down", netlink.LinkSetDown(n.link("bond0")))
			n.must("up", netlink.LinkSetUp(n.link("bond0")))
		}},
		{"bond made again", func() { n.makeBond(netlink.BOND_MODE_ACTIVE_BACKUP) }},
		{"bond made again as 802.3ad", func() { n.makeBond(netlink.BOND_MODE_802_3AD) }},
		{"address deleted", func() { n.delAddress(nodeVIF, ownAddress) }},
		{"reverse path filter", func() { n.sysctl("net/ipv4/conf/"+nodeVIF+"/rp_filter", "1") }},
		{"MTU", func() { n.must("MTU", netlink.LinkSetMTU(n.link(nodeVIF), 1400)) }},
		{"hardware address", func() {
			n.must("address", netlink.LinkSetHardwareAddr(n.link(nodeVIF), net.HardwareAddr{2, 0, 0, 0, 0, 9}))
		}},
		{"flushed by systemd-networkd", func() {
			n.delAddress(nodeVIF, ownAddress)
			n.must("down", netlink.LinkSetDown(n.link(nodeVIF)))
			n.sysctl("net/ipv4/conf/"+nodeVIF+"/arp_announce", "0")
			n.sysctl("net/ipv4/conf/"+nodeVIF+"/promote_secondaries", "0")
		}},
	} {
		tc.disturb()
		took := n.waitUntil(tc.name, 30*time.Second, right)
		t.Logf("%-28s repaired after %s", tc.name, took.Round(time.Millisecond))
		slowest = max(slowest, took)
	}
	n.rests("network", netstate.Watch)
	t.Logf("figure vlan_repaired_max %.2f s", slowest.Seconds())
	if limits.Late(slowest, seenWithin) {
		t.Errorf("a repair took %s, want at most %s", slowest, seenWithin)
	}
}

// TestOrders: another address, another VLAN, no address, no membership, no word at all.
func TestOrders(t *testing.T) {
	n := bareServer(t, netlink.BOND_MODE_ACTIVE_BACKUP)
	k := startVLANReconciler(n, 0)
	first := expected()
	k.expect(first)
	n.waitUntil("the interface", 30*time.Second, func() string { return n.amiss(nodeVIF, first, ownAddress) })
	n.addAddress(nodeVIF, serviceVIP+"/32") // kube-serviceVIP's

	other := expected()
	other.Network.IPs = []netip.Addr{netip.MustParseAddr("203.0.113.2")}
	k.expect(other)
	n.waitUntil("another address", 30*time.Second,
		func() string { return n.amiss(nodeVIF, other, "203.0.113.2/29", serviceVIP+"/32") })

	none := expected()
	none.Network.IPs = nil
	none.Virtual = []netip.Addr{netip.MustParseAddr(serviceVIP)}
	fallback := vlan.LinkLocal(none.Network.ServerID).String() + "/32"
	k.expect(none)
	n.waitUntil("no address", 30*time.Second, func() string {
		return n.amiss(nodeVIF, none, fallback,
			serviceVIP+"/32")
	})

	k.expect(check.Expected{})
	time.Sleep(500 * time.Millisecond)
	if wrong := n.amiss(nodeVIF, none, fallback, serviceVIP+"/32"); wrong != "" {
		t.Errorf("without a word of the controller: %s", wrong)
	}

	moved := expected()
	moved.Network.VLAN = 200
	k.expect(moved)
	n.waitUntil("another VLAN", 30*time.Second, func() string { return n.amiss("bond0.200", moved, ownAddress) })
	if _, err := netlink.LinkByName(nodeVIF); err == nil {
		t.Errorf("%s is still there", nodeVIF)
	}

	gone := expected()
	gone.Network.Member = false
	k.expect(gone)
	time.Sleep(500 * time.Millisecond)
	if wrong := n.amiss("bond0.200", moved, ownAddress); wrong != "" {
		t.Errorf("within the grace after the membership: %s", wrong)
	}
}

// TestAdopted: an interface that a user made is completed, not replaced, and afterwards it is restored.
func TestAdopted(t *testing.T) {
	n := newNetwork(t)
	n.must("alias", netlink.LinkSetAlias(n.link(nodeVIF), "to rack 7"))
	n.must("group", netlink.LinkSetGroup(n.link(nodeVIF), 7))
	n.delAddress(nodeVIF, ownAddress)
	n.addAddress(nodeVIF, "10.9.9.9/32")
	n.sysctl("net/ipv4/conf/"+nodeVIF+"/rp_filter", "1")
	n.sysctl("net/ipv4/conf/"+nodeVIF+"/proxy_arp", "1")
	n.must("down", netlink.LinkSetDown(n.link(nodeVIF)))
	before := n.photograph()
	index := n.link(nodeVIF).Attrs().Index

	k := startVLANReconciler(n, 0)
	e := expected()
	k.expect(e)
	n.waitUntil("the interface", 30*time.Second, func() string {
		return n.amiss(nodeVIF, e, "10.9.9.9/32",
			ownAddress)
	})
	if n.link(nodeVIF).Attrs().Index != index {
		t.Errorf("%s was replaced", nodeVIF)
	}
	n.sysctl("net/ipv4/conf/"+nodeVIF+"/rp_filter", "0")
	n.waitUntil("a repair", 30*time.Second, func() string { return n.amiss(nodeVIF, e, "10.9.9.9/32", ownAddress) })
	k.kill()
	n.cleanUp()
	n.mustBe(before)
}

// TestForeignLinksStay: links that the agent did not make stay, whatever group and alias they have; so does one that it
// made and that is a port of a bridge since. The clean-up says why.
func TestForeignLinksStay(t *testing.T) {
	n := bareServer(t, netlink.BOND_MODE_ACTIVE_BACKUP)
	grouped := func(name string) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		attrs.Group = ownership.BirthGroup
		return attrs
	}
	for _, l := range []netlink.Link{&netlink.Bridge{LinkAttrs: grouped("vmbr1")},
		&netlink.Dummy{LinkAttrs: grouped("dummy1")}, netlink.NewLinkBond(grouped("bond1")),
		&netlink.Veth{LinkAttrs: grouped("tap1"), PeerName: "guest1"}} {
		n.must("add "+l.Attrs().Name, netlink.LinkAdd(l))
	}
	n.addAddress("vmbr1", "10.7.0.1/24")
	n.must("mark bond0", netlink.LinkSetAlias(n.link("bond0"), "phoenixnap-agent made"))
	n.addVLAN("bond0", "bond0.7", 7)
	n.must("mark bond0.7", netlink.LinkSetAlias(n.link("bond0.7"), "phoenixnap-agent made"))
	n.must("plug bond0.7", netlink.LinkSetMaster(n.link("bond0.7"), n.link("vmbr1")))
	n.addVLAN("bond0", "bond0.8", 8)
	n.must("mark bond0.8", netlink.LinkSetAlias(n.link("bond0.8"), "phoenixnap-agent made"))
	guest := grouped("guest8")
	guest.ParentIndex = n.link("bond0.8").Attrs().Index
	n.must("add guest8", netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: guest, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	before := n.photograph()
	_, err := vlan.Cleanup(t.Context(), vlan.System{Journal: &ownership.Journal{}})
	for _, want := range []string{"bond0 is none", "bond0.7, which the agent made, stays: it is a port of vmbr1",
		"bond0.8, which the agent made, stays: guest8 is on it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the clean-up says %v, want %q", err, want)
		}
	}
	n.mustBe(before)
}

// addBridge makes vmbr0 with bond0 as its port, as an installer of a hypervisor does.
func (n *network) addBridge(filtering bool) {
	n.t.Helper()
	n.must("add vmbr0", netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "vmbr0",
		HardwareAddr: n.link("bond0").Attrs().HardwareAddr}, VlanFiltering: &filtering}))
	n.must("plug bond0", netlink.LinkSetMaster(n.link("bond0"), n.link("vmbr0")))
	n.must("vmbr0 up", netlink.LinkSetUp(n.link("vmbr0")))
	if filtering {
		n.must("VLAN on vmbr0", netlink.BridgeVlanAdd(n.link("vmbr0"), vlanID, false, false, true, false))
		n.must("VLAN on bond0", netlink.BridgeVlanAdd(n.link("bond0"), vlanID, false, false, false, true))
	}
}

// addStorage makes a second bond, whose switch has a network with the same VLAN ID.
func (n *network) addStorage() {
	n.t.Helper()
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond1"})
	bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	n.must("add bond1", netlink.LinkAdd(bond))
	n.must("add a cable", netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno3"}, PeerName: "port3"}))
	n.must("enslave eno3", netlink.LinkSetMaster(n.link("eno3"), n.link("bond1")))
	for _, name := range []string{"port3", "eno3", "bond1"} {
		n.must(name+" up", netlink.LinkSetUp(n.link(name)))
	}
	n.addVLAN("bond1", "bond1.100", vlanID, "10.60.0.2/24")
}

// TestShapesOfServers: on a bridge over the bond, and beside a bond with the same VLAN ID, the node is healthy, and a
// managing agent adopts only the interface of the network.
func TestShapesOfServers(t *testing.T) {
	onBridge := func(filtering bool) func(n *network) {
		return func(n *network) {
			n.must("delete "+nodeVIF, netlink.LinkDel(n.link(nodeVIF)))
			n.addBridge(filtering)
			n.addVLAN("vmbr0", nodeVIF, vlanID, ownAddress)
			n.must("default route", netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("192.0.2.1")}))
		}
	}
	for name, tc := range map[string]struct {
		shape  func(n *network)
		uplink string
	}{
		"bridge over the bond":   {onBridge(false), "vmbr0"},
		"bridge that filters":    {onBridge(true), "vmbr0"},
		"bond below a bridge":    {func(n *network) { n.addBridge(false) }, "bond0"},
		"storage with the VLAN":  {(*network).addStorage, "bond0"},
		"a VLAN inside the VLAN": {func(n *network) { n.addVLAN(nodeVIF, "inner", vlanID, "10.63.0.2/24") }, "bond0"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			tc.shape(n)
			n.waitForCarrier()
			before := n.photograph()
			n.waitUntil("a healthy node", 30*time.Second, func() string {
				_, report := n.look(expected())
				if report.Uplink != tc.uplink || report.Interface != nodeVIF || report.Outcome().Status != check.OK {
					return fmt.Sprintf("%s on %s: %+v", report.Interface, report.Uplink, report.Outcome())
				}
				if f := report.Finding(check.VLANUnique); f.Status != check.OK {
					return f.Cause
				}
				return ""
			})
			k := startVLANReconciler(n, 0)
			k.expect(expected())
			n.waitUntil("the adoption", 30*time.Second, func() string {
				if alias := n.link(nodeVIF).Attrs().Alias; !strings.HasPrefix(alias, "phoenixnap-agent adopted") {
					return fmt.Sprintf("%s has the alias %q", nodeVIF, alias)
				}
				return ""
			})
			k.kill()
			links, err := netlink.LinkList()
			n.must("list links", err)
			for _, l := range links {
				if a := l.Attrs(); a.Name != nodeVIF && a.Alias != "" {
					t.Errorf("%s was touched: alias %q", a.Name, a.Alias)
				}
			}
			n.cleanUp()
			n.mustBe(before)
		})
	}
}

// TestWrongInterfaceIsNotTouched: what a user configured wrong is reported, and nothing is changed.
func TestWrongInterfaceIsNotTouched(t *testing.T) {
	for name, wrong := range map[string]func(n *network){
		"another VLAN ID":      func(n *network) { n.addVLAN("bond0", nodeVIF, 101, ownAddress) },
		"a member of the bond": func(n *network) { n.addVLAN("eno1", "eno1.100", vlanID, ownAddress) },
		"address elsewhere":    func(n *network) { n.addAddress("bond0", ownAddress) },
	} {
		t.Run(name, func(t *testing.T) {
			n := bareServer(t, netlink.BOND_MODE_ACTIVE_BACKUP)
			wrong(n)
			before := n.photograph()
			k := startVLANReconciler(n, 0)
			k.expect(expected())
			n.waitUntil("the event", 30*time.Second, func() string {
				if !k.reported(vlan.ReasonNotConfigured) {
					return "none was reported"
				}
				return ""
			})
			k.kill()
			n.mustBe(before)
		})
	}
}

// TestAddressInUse: an address for which another machine answers is not put on the interface.
func TestAddressInUse(t *testing.T) {
	n := bareServer(t, netlink.BOND_MODE_ACTIVE_BACKUP)
	n.in(n.gateway, func() { n.addAddress("port1.100", "192.0.2.2/32") })
	n.addVLAN("bond0", nodeVIF, vlanID)
	n.waitForCarrier()
	k := startVLANReconciler(n, 0)
	k.expect(expected())
	n.waitUntil("the event", 30*time.Second, func() string {
		for _, e := range k.history() {
			if e.Reason == vlan.ReasonNotConfigured && strings.Contains(e.Message, "answers for it") {
				return ""
			}
		}
		return fmt.Sprintf("events %+v", k.history())
	})
	if got := n.addresses(n.link(nodeVIF)); len(got) != 0 {
		t.Errorf("%s has the addresses %q", nodeVIF, got)
	}
}

// TestDeaths kills the reconciler at every step of its work and at random moments. The next one continues from there,
// and the clean-up finds everything.
func TestDeaths(t *testing.T) {
	n := bareServer(t, netlink.BOND_MODE_ACTIVE_BACKUP)
	before := n.photograph()
	r := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	for death := range 8 {
		var k *vlanReconciler
		if death < 4 {
			k = startVLANReconciler(n, death+1)
			k.expect(expected())
			k.died()
		} else {
			k = startVLANReconciler(n, 0)
			k.expect(expected())
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			k.kill()
		}
		if death%2 == 0 {
			k = startVLANReconciler(n, 0)
			k.expect(expected())
			n.waitUntil("the interface", 30*time.Second,
				func() string { return n.amiss(nodeVIF, expected(), ownAddress) })
			k.kill()
		}
		n.cleanUp()
		n.mustBe(before)
	}
}
