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
				network.Network{ID: "n", VLAN: 20, Members: test.members}, nil, contract.AnnouncerAgent)
			want := contract.NodeNetwork{ServerID: "s", NetworkID: "n", VLAN: 20, Announcer: "agent",
				Member: test.member, IPs: test.ips}
			if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsableBlocks(t *testing.T) {
	block := func(cidr string) network.ListedBlock {
		return network.ListedBlock{ID: cidr, CIDR: netip.MustParsePrefix(cidr)}
	}
	known := contract.NetworkBlock{CIDR: netip.MustParsePrefix("203.0.113.0/28"),
		Gateway: netip.MustParseAddr("203.0.113.1")}
	fresh := contract.NetworkBlock{CIDR: netip.MustParsePrefix("203.0.113.16/29"),
		Gateway: netip.MustParseAddr("203.0.113.17")}
	both := []network.ListedBlock{block("203.0.113.16/29"), {ID: "odd"}, block("203.0.113.0/28")}
	tests := map[string]struct {
		network   network.Network
		published []contract.NetworkBlock
		want      []contract.NetworkBlock
	}{
		"ready": {network: network.Network{Status: network.StatusReady, Blocks: both},
			want: []contract.NetworkBlock{known, fresh}},
		"busy: only what was known": {network: network.Network{Status: network.StatusBusy, Blocks: both},
			published: []contract.NetworkBlock{known}, want: []contract.NetworkBlock{known}},
		"unknown status: as busy": {network: network.Network{Status: "QUANTUM", Blocks: both},
			published: []contract.NetworkBlock{known}, want: []contract.NetworkBlock{known}},
		"removed while busy": {network: network.Network{Status: network.StatusBusy},
			published: []contract.NetworkBlock{known}, want: []contract.NetworkBlock{}},
		"busy and nothing known so far": {network: network.Network{Status: network.StatusBusy, Blocks: both},
			want: []contract.NetworkBlock{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, usableBlocks(test.network, test.published), equateAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	value := func(s string) *string { return &s }
	current := map[string]string{contract.NodeServerID: "s", contract.NodePublicNetworkVLAN: "20",
		contract.NodeAnnouncer: "agent", "other/annotation": "x"}
	desired := map[string]string{contract.NodeServerID: "s", contract.NodeAnnouncer: "none",
		contract.NodePublicNetworkIPs: ""}
	want := map[string]*string{contract.NodePublicNetworkVLAN: nil, contract.NodeAnnouncer: value("none"),
		contract.NodePublicNetworkIPs: value("")}
	if diff := cmp.Diff(want, changes(current, desired)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := changes(desired, desired); len(got) != 0 {
		t.Errorf("no difference: got %v", got)
	}
}

// The encoded annotations are exactly those that the package owns, but for the one that marks that there is no server.
func TestOwnAnnotationsAreThoseOfTheContract(t *testing.T) {
	encoded, err := contract.NodeNetwork{}.Annotations()
	if err != nil {
		t.Fatal(err)
	}
	owned := map[string]bool{}
	for _, name := range networkAnnotations() {
		owned[name] = true
		if _, ok := encoded[name]; !ok && name != contract.NodeServerMissing {
			t.Errorf("%s is owned but not encoded", name)
		}
	}
	for name := range encoded {
		if !owned[name] {
			t.Errorf("%s is encoded but not owned", name)
		}
	}
}
