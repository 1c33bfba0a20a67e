//go:build linux

package netstate

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

func TestLinkOf(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0xab}
	attrs := netlink.LinkAttrs{Index: 6, Name: "bond0.100", MTU: 1500, HardwareAddr: mac,
		RawFlags:  unix.IFF_UP | unix.IFF_LOWER_UP,
		OperState: netlink.OperUp, ParentIndex: 4, NetNsID: -1}
	vlan := &netlink.Vlan{LinkAttrs: attrs, VlanId: 100, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD}
	want := check.Link{Index: 6, Name: "bond0.100", Type: "vlan", MAC: "02:00:00:00:00:ab", MTU: 1500, Up: true,
		LowerUp:   true,
		OperState: "up", Parent: 4, VLAN: &check.VLAN{ID: 100, Protocol: "802.1ad"}}
	if diff := cmp.Diff(want, linkOf(vlan)); diff != "" {
		t.Errorf("VLAN link (-want +got):\n%s", diff)
	}
	vlan.NetNsID = 3
	if got := linkOf(vlan).Parent; got != 0 {
		t.Errorf("a parent of another namespace is index %d, want none", got)
	}
	bond := &netlink.Bond{LinkAttrs: netlink.LinkAttrs{Name: "bond0", MasterIndex: 9}, Mode: netlink.BOND_MODE_802_3AD,
		MinLinks: -1}
	if diff := cmp.Diff(check.Link{Name: "bond0", Type: "bond", OperState: "unknown", Master: 9,
		Bond: &check.Bond{Mode: "802.3ad"}}, linkOf(bond)); diff != "" {
		t.Errorf("bond (-want +got):\n%s", diff)
	}
}

// TestActiveAggregator reads a message as the kernel sends it.
func TestActiveAggregator(t *testing.T) {
	info := func(partner []byte) []byte {
		link := nl.NewRtAttr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, nil)
		data := link.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		data.AddRtAttr(nl.IFLA_BOND_MODE, []byte{4})
		ad := data.AddRtAttr(nl.IFLA_BOND_AD_INFO, nil)
		ad.AddRtAttr(nl.IFLA_BOND_AD_INFO_AGGREGATOR, nl.Uint16Attr(3))
		ad.AddRtAttr(nl.IFLA_BOND_AD_INFO_PARTNER_MAC, partner)
		return append(make([]byte, unix.SizeofIfInfomsg), link.Serialize()...)
	}
	if id, partner := activeAggregator(info([]byte{0, 0x1c, 0x73, 0, 0, 1})); id != 3 ||
		partner != "00:1c:73:00:00:01" {
		t.Errorf("aggregator %d, partner %q", id, partner)
	}
	if id, partner := activeAggregator(info(make([]byte, 6))); id != 3 || partner != "" {
		t.Errorf("without a partner: aggregator %d, partner %q", id, partner)
	}
	whole := info(make([]byte, 6))
	for length := range whole {
		activeAggregator(whole[:length])
	}
}

func TestAddressOf(t *testing.T) {
	ip, ipnet, err := net.ParseCIDR("203.0.113.3/32")
	if err != nil {
		t.Fatal(err)
	}
	ipnet.IP = ip
	got, valid := addressOf(netlink.Addr{IPNet: ipnet, LinkIndex: 6, Flags: unix.IFA_F_DEPRECATED})
	if !valid || got.Prefix.String() != "203.0.113.3/32" || !got.Deprecated || got.LinkIndex != 6 {
		t.Errorf("address is %+v, valid %t", got, valid)
	}
	if _, valid := addressOf(netlink.Addr{}); valid {
		t.Error("an address without an address is valid")
	}
}

func TestMemberOfABond(t *testing.T) {
	permanent := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	member := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eno1", MasterIndex: 4, Slave: &netlink.BondSlave{
		MiiStatus: netlink.BondLinkUp, AggregatorId: 2, AdActorOperPortState: 0xc5, PermHardwareAddr: permanent}}}
	want := &check.Slave{Up: true, Aggregator: 2, NoPartner: true, PermanentMAC: "02:00:00:00:00:09"}
	if diff := cmp.Diff(want, linkOf(member).Slave); diff != "" {
		t.Errorf("member without a partner (-want +got):\n%s", diff)
	}
	member.Slave = &netlink.BondSlave{MiiStatus: netlink.BondLinkFail, AggregatorId: 1, AdActorOperPortState: 0x3d}
	if diff := cmp.Diff(&check.Slave{Aggregator: 1}, linkOf(member).Slave); diff != "" {
		t.Errorf("member that is down (-want +got):\n%s", diff)
	}
}

func TestRuleOf(t *testing.T) {
	mask := uint32(0x2000)
	_, source, err := net.ParseCIDR("192.0.2.0/28")
	if err != nil {
		t.Fatal(err)
	}
	got := []check.Rule{
		ruleOf(netlink.Rule{Priority: 1055, Mark: 0x2000, Mask: &mask, Table: 1100, Protocol: 186}),
		ruleOf(netlink.Rule{Priority: 1056, Src: source, Table: 1100, IifName: "eth0", Invert: true}),
	}
	want := []check.Rule{
		{Priority: 1055, Mark: 0x2000, Mask: 0x2000, Table: 1100, Protocol: 186},
		{Priority: 1056, Source: netip.MustParsePrefix("192.0.2.0/28"), Table: 1100, Iif: "eth0", Invert: true},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestRoutesOf(t *testing.T) {
	samePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	sameAddr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	got := routesOf(netlink.Route{Type: unix.RTN_UNICAST, Priority: 100, Protocol: 186,
		MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: 5, Gw: net.IPv4(10, 0, 0, 1)}, {LinkIndex: 6, Gw: net.IPv4(192, 0, 2, 1)}}})
	want := []check.Route{
		{Destination: everywhere, LinkIndex: 5, Gateway: netip.MustParseAddr("10.0.0.1"), Type: "unicast", Metric: 100,
			Protocol: 186},
		{Destination: everywhere, LinkIndex: 6, Gateway: netip.MustParseAddr("192.0.2.1"), Type: "unicast", Metric: 100,
			Protocol: 186},
	}
	if diff := cmp.Diff(want, got, samePrefix, sameAddr); diff != "" {
		t.Errorf("default route by two gateways (-want +got):\n%s", diff)
	}
	for number, name := range map[int]string{unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable",
		unix.RTN_THROW: "throw", 11: "type 11"} {
		if got := routesOf(netlink.Route{Type: number})[0].Type; got != name {
			t.Errorf("type %d is %q, want %q", number, got, name)
		}
	}
}

// TestKeptOfTheMainTable: routes that do not matter are not kept, for any number of pods.
func TestKeptOfTheMainTable(t *testing.T) {
	keep := choice{links: map[int]check.Link{4: {Index: 4, Bond: &check.Bond{}},
		6: {Index: 6, VLAN: &check.VLAN{ID: 100}}, 9: {Index: 9, Type: "veth"}, 10: {Index: 10, Type: "device"}}}
	kept := 0
	for i := range 300 {
		pod := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i / 250), byte(i % 250)}), 32)
		if keep.keeps(check.Route{Destination: pod, LinkIndex: 9}) {
			kept++
		}
	}
	if kept != maxPodRoutes {
		t.Errorf("%d of 300 pods' routes are kept, want %d", kept, maxPodRoutes)
	}
	for destination, links := range map[string]map[int]bool{
		"0.0.0.0/0": {10: true, 9: true}, "128.0.0.0/1": {10: true}, "192.0.2.0/28": {4: true, 6: true, 10: false},
	} {
		for link, want := range links {
			if got := keep.keeps(check.Route{Destination: netip.MustParsePrefix(destination),
				LinkIndex: link}); got != want {
				t.Errorf("%s by link %d is kept: %t, want %t", destination, link, got, want)
			}
		}
	}
}

// TestProgramOf reads messages as the kernel sends them for filters.
func TestProgramOf(t *testing.T) {
	filter := func(kind string, options func(*nl.RtAttr)) []byte {
		o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
		options(o)
		k := nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind))
		return slices.Concat(make([]byte, nl.SizeofTcMsg), k.Serialize(), o.Serialize())
	}
	named := func(name string) func(*nl.RtAttr) {
		return func(o *nl.RtAttr) { o.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(name)) }
	}
	for name, tc := range map[string]struct {
		message []byte
		want    string
		ok      bool
	}{
		"eBPF":         {filter("bpf", named("cil_from_netdev-eno1")), "cil_from_netdev-eno1", true},
		"long":         {filter("bpf", named(strings.Repeat("x", 200))), strings.Repeat("x", maxProgramName), true},
		"without name": {filter("bpf", func(o *nl.RtAttr) { o.AddRtAttr(nl.TCA_BPF_ID, nl.Uint32Attr(7)) }), "", true},
		"classic BPF": {filter("bpf", func(o *nl.RtAttr) { o.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(1)) }), "",
			false},
		"another kind": {filter("matchall", named("x")), "", false},
	} {
		if got, ok := programOf(tc.message); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %q, %t, want %q, %t", name, got, ok, tc.want, tc.ok)
		}
		for length := 0; length < len(tc.message); length += unix.NLA_ALIGNTO {
			programOf(tc.message[:length])
		}
	}
}

func TestCarriers(t *testing.T) {
	member := &check.Slave{}
	got := carriers([]check.Link{{Index: 1}, {Index: 2, Master: 4, Slave: member}, {Index: 3, Master: 7, Slave: member},
		{Index: 4}, {Index: 5, Parent: 4, VLAN: &check.VLAN{ID: 11}}, {Index: 7}, {Index: 8, Master: 4}})
	if want := []int{2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("programs are listed of %v, want %v", got, want)
	}
}
