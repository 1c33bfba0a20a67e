package metadata

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
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
		return []pnap.Membership{{Network: "other", Status: "assigned", IPs: addrs("10.9.9.9")},
			{Network: "n", Status: status, IPs: addrs(ips...)}}
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
				PublicNetwork{Named: network.Named{Name: "default", ID: "n"}, Announcer: contract.AnnouncerAgent})
			want := contract.NodeNetwork{ServerID: "s", Name: "default", ID: "n", VLAN: 20, Announcer: "agent",
				Member: test.member, IPs: test.ips}
			if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestConcerning: a Node lists the networks of its server, and the default one only if it is in none. One that is not
// published any more stays until the server leaves it.
func TestConcerning(t *testing.T) {
	all := []PublicNetwork{{Named: network.Named{Name: "default", ID: "ash"}, Announcer: contract.AnnouncerKubeVIP},
		{Named: network.Named{Name: "phx", ID: "phx"}, Announcer: contract.AnnouncerKubeVIP},
		{Named: network.Named{Name: "slc", ID: "slc"}, Announcer: contract.AnnouncerKubeVIP}}
	listing := func(names ...string) (n []contract.NodeNetwork) {
		for _, name := range names {
			id := name
			if name == "default" {
				id = "former"
			}
			n = append(n, contract.NodeNetwork{Name: name, ID: id, VLAN: 20, Announcer: contract.AnnouncerAgent})
		}
		return n
	}
	for name, tc := range map[string]struct {
		published []PublicNetwork
		in        []string
		listed    []contract.NodeNetwork
		want      []string // IDs
	}{
		"off":                                    {nil, []string{"ash"}, nil, nil},
		"off, listed before":                     {nil, []string{"phx"}, listing("phx"), nil},
		"of none":                                {all, nil, nil, []string{"ash"}},
		"of a network of no object":              {all, []string{"else"}, nil, []string{"ash"}},
		"of the default":                         {all, []string{"ash"}, nil, []string{"ash"}},
		"of another":                             {all, []string{"phx"}, nil, []string{"phx"}},
		"of both":                                {all, []string{"phx", "ash"}, nil, []string{"ash", "phx"}},
		"the object is gone":                     {all[:1], []string{"phx"}, listing("phx"), []string{"phx"}},
		"the object is gone, in both":            {all[:1], []string{"ash", "phx"}, listing("phx"), []string{"ash", "phx"}},
		"the object is gone, the server":         {all[:1], nil, listing("phx"), []string{"ash"}},
		"the object has another name now":        {all, []string{"phx"}, listing("phx"), []string{"phx"}},
		"the option names another network":       {all[:1], []string{"former", "ash"}, listing("default"), []string{"ash"}},
		"the option names one that it is not in": {all[:1], []string{"former"}, listing("default"), []string{"ash"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			if tc.listed != nil {
				node.Annotations = nodenet.On(tc.listed...)
			}
			var ids []string
			for _, n := range concerning(node, in(tc.in...), tc.published) {
				ids = append(ids, n.ID)
			}
			if diff := cmp.Diff(tc.want, ids); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// in is a server that is a member of networks.
func in(ids ...string) pnap.Server {
	server := pnap.Server{ID: "s"}
	for _, id := range ids {
		server.PublicNetworks = append(server.PublicNetworks, pnap.Membership{Network: id,
			Status: pnap.MembershipAssigned, IPs: addrs("203.0.113.9")})
	}
	return server
}

// A server in two locations' networks with one VLAN ID.
func TestDescribeAll(t *testing.T) {
	edge := labels.SelectorFromSet(labels.Set{"edge": "yes"})
	ash := PublicNetwork{Named: network.Named{Name: "default", ID: "ash"}, Announcer: contract.AnnouncerKubeVIP,
		Selector: edge}
	phx := PublicNetwork{Named: network.Named{Name: "phx", ID: "phx"}, Announcer: contract.AnnouncerAgent}
	read := map[string]network.Network{"ash": {ID: "ash", VLAN: 20}, "phx": {ID: "phx", VLAN: 20}}
	inASH := contract.NodeNetwork{ServerID: "s", Name: "default", ID: "ash", VLAN: 20, Member: true,
		IPs: addrs("203.0.113.9"), Announcer: contract.AnnouncerNone}
	inPHX := contract.NodeNetwork{ServerID: "s", Name: "phx", ID: "phx", VLAN: 20,
		Announcer: contract.AnnouncerAgent}
	node := &corev1.Node{}
	got, known := describeAll(node, in("ash"), []PublicNetwork{ash, phx}, read)
	if diff := cmp.Diff([]contract.NodeNetwork{inASH, inPHX}, got, equateAddrs); diff != "" || !known {
		t.Errorf("known %t (-want +got):\n%s", known, diff)
	}
	node.Labels = map[string]string{"edge": "yes"}
	inASH.Announcer = contract.AnnouncerKubeVIP
	got, known = describeAll(node, in("ash"), []PublicNetwork{ash}, read)
	if diff := cmp.Diff([]contract.NodeNetwork{inASH}, got, equateAddrs); diff != "" || !known {
		t.Errorf("selected: known %t (-want +got):\n%s", known, diff)
	}
	delete(read, "phx")
	if got, known := describeAll(node, in("ash"), []PublicNetwork{ash, phx}, read); known {
		t.Errorf("one was not read: %v", got)
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
