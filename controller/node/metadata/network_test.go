package metadata

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var equateAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestDescribeMembership(t *testing.T) {
	entry := func(status string, ips ...string) []pnap.Membership {
		return []pnap.Membership{{NetworkID: "other", Status: "assigned", IPs: addrs("10.9.9.9")},
			{NetworkID: "n", Status: status, IPs: addrs(ips...)}}
	}
	listed := []network.Member{{ServerID: "x"}, {ServerID: "s", IPs: addrs("203.0.113.9")}}
	tests := map[string]struct {
		networks []pnap.Membership
		members  []network.Member
		member   bool
		ips      []netip.Addr
	}{
		"assigned": {networks: entry("assigned", "203.0.113.2"), members: listed, member: true,
			ips: addrs("203.0.113.2")},
		"assigned, list lags": {networks: entry("assigned", "203.0.113.2"), member: true,
			ips: addrs("203.0.113.2")},
		"joining": {networks: entry("in-progress", "203.0.113.2"), members: listed,
			ips: addrs("203.0.113.2")},
		"unknown status": {networks: entry("leaving", "203.0.113.2"), members: listed,
			ips: addrs("203.0.113.2")},
		"entry without a status": {networks: entry("", "203.0.113.2"), members: listed, member: true,
			ips: addrs("203.0.113.2")},
		"entry without addresses": {networks: entry("assigned"), members: listed, member: true,
			ips: addrs("203.0.113.9")},
		"left, list lags": {members: listed},
		"never a member":  {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := describe(pnap.Server{ID: "s", PublicNetworks: test.networks},
				network.Network{ID: "n", VLAN: 20, Members: test.members},
				PublicNetwork{Name: "default", NetworkID: "n", Announcer: contract.AnnouncerAgent})
			want := contract.NodeNetwork{ServerID: "s", Name: "default", NetworkID: "n", VLAN: 20, Announcer: "agent",
				Member: test.member, IPs: test.ips}
			if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A server in two locations' networks with one VLAN ID, of which the cluster publishes three.
func TestDescribeAll(t *testing.T) {
	published := []PublicNetwork{{"default", "ash", contract.AnnouncerKubeVIP},
		{"phx", "phx", contract.AnnouncerAgent}, {"slc", "slc", contract.AnnouncerNone}}
	ash := network.Network{ID: "ash", VLAN: 20, Location: "ASH"}
	phx := network.Network{ID: "phx", VLAN: 20, Location: "PHX"}
	in := func(ids ...string) (all []pnap.Membership) {
		for _, id := range ids {
			all = append(all, pnap.Membership{NetworkID: id, Status: pnap.MembershipAssigned,
				IPs: addrs("203.0.113.9")})
		}
		return all
	}
	member := func(name, announcer string) contract.NodeNetwork {
		return contract.NodeNetwork{ServerID: "s", Name: name, NetworkID: name, VLAN: 20, Member: true,
			IPs: addrs("203.0.113.9"), Announcer: announcer}
	}
	inASH := member("ash", contract.AnnouncerKubeVIP)
	inASH.Name = "default"
	outside := contract.NodeNetwork{ServerID: "s", Name: "default", NetworkID: "ash", VLAN: 20,
		Announcer: contract.AnnouncerKubeVIP}
	inPHX := member("phx", contract.AnnouncerAgent)
	joining := inPHX
	joining.Member = false
	for name, tc := range map[string]struct {
		published   []PublicNetwork
		memberships []pnap.Membership
		read        []network.Network
		want        []contract.NodeNetwork
		unknown     bool
	}{
		"off":                       {memberships: in("ash"), read: []network.Network{ash}},
		"of none":                   {published, nil, []network.Network{ash, phx}, []contract.NodeNetwork{outside}, false},
		"of a network of no object": {published, in("else"), []network.Network{ash, phx}, []contract.NodeNetwork{outside}, false},
		"of the default":            {published, in("ash"), []network.Network{ash, phx}, []contract.NodeNetwork{inASH}, false},
		"of the other": {published, in("phx"), []network.Network{ash, phx}, []contract.NodeNetwork{outside, inPHX},
			false},
		"of both": {published, in("phx", "ash"), []network.Network{ash, phx}, []contract.NodeNetwork{inASH, inPHX},
			false},
		"joins the other": {published, []pnap.Membership{{NetworkID: "phx", Status: "in-progress",
			IPs: addrs("203.0.113.9")}}, []network.Network{ash, phx}, []contract.NodeNetwork{outside, joining}, false},
		"the other was not read":     {published, in("ash", "phx"), []network.Network{ash}, nil, true},
		"one of others was not read": {published, in("ash"), []network.Network{ash}, []contract.NodeNetwork{inASH}, false},
		"the default was not read":   {published, in("phx"), []network.Network{phx}, nil, true},
		"without a default":          {published[1:], in("ash"), []network.Network{phx}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			read := map[string]network.Network{}
			for _, n := range tc.read {
				read[n.ID] = n
			}
			got, known := describeAll(pnap.Server{ID: "s", PublicNetworks: tc.memberships}, tc.published, read)
			if diff := cmp.Diff(tc.want, got, equateAddrs); diff != "" || known == tc.unknown {
				t.Errorf("known %v (-want +got):\n%s", known, diff)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	value := func(s string) *string { return &s }
	desired := map[string]string{contract.NodeServerID: "s", contract.NodePublicNetworks: "[]"}
	for name, tc := range map[string]struct {
		current map[string]string
		want    map[string]*string
	}{
		"one differs, one is left over": {map[string]string{contract.NodeServerID: "s",
			contract.NodePublicNetworks: "x", contract.NodeServerMissing: "2026-03-01T12:00:00Z",
			"other/annotation": "x"},
			map[string]*string{contract.NodePublicNetworks: value("[]"), contract.NodeServerMissing: nil}},
		"nothing is there": {nil, map[string]*string{contract.NodeServerID: value("s"),
			contract.NodePublicNetworks: value("[]")}},
	} {
		if diff := cmp.Diff(tc.want, changes(tc.current, desired)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := changes(desired, desired); len(got) != 0 {
		t.Errorf("no difference: got %v", got)
	}
}
