package membership

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func (k kind) String() string {
	return [...]string{"forget", "lost", "leave", "join", "refuse"}[k]
}

func TestDecide(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.2")
	server := func(status pnap.ServerStatus, location string, entries ...pnap.Membership) *pnap.Server {
		return &pnap.Server{ID: "s", Hostname: "n", Status: status, Location: location, PublicNetworks: entries}
	}
	entry := func(network, status string, ips ...netip.Addr) pnap.Membership {
		return pnap.Membership{Network: network, Status: status, IPs: ips}
	}
	on := pnap.ServerPoweredOn
	ours := &joined{Network: "n", Address: address}
	tests := map[string]struct {
		server      *pnap.Server
		wanted      bool
		name        string // of the Node; n by default, as the server
		recorded    *joined
		listed      bool
		isChanging  bool
		unwantedFor time.Duration
		want        string
	}{
		"foreign and not wanted": {server: server(on, "ASH", entry("n", "assigned"))},
		"wanted":                 {server: server(on, "ASH"), wanted: true, want: "join s"},
		"wanted, in lower case":  {server: server(on, "ash"), wanted: true, want: "join s"},
		"wanted and off": {server: server(pnap.ServerPoweredOff, "ASH"), wanted: true,
			want: "join s"},
		"wanted, changed a moment ago": {server: server(on, "ASH"), wanted: true, isChanging: true},
		"wanted while it reboots":      {server: server(pnap.ServerRebooting, "ASH"), wanted: true},
		"wanted while it is unknown":   {server: server("quantum", "ASH"), wanted: true},
		"wanted but not in the list":   {wanted: true},
		"wanted but elsewhere":         {server: server(on, "PHX"), wanted: true, want: "refuse s"},
		"wanted, by the provider ID only": {server: server(on, "ASH"), wanted: true, name: "x",
			want: "refuse s"},
		"by the provider ID only, a member": {server: server(on, "ASH", entry("n", "assigned", address)),
			wanted: true, name: "x"},
		"wanted and a member": {server: server(on, "ASH", entry("n", "assigned", address)),
			wanted: true},
		"wanted and joining": {server: server(on, "ASH", entry("n", "in-progress", address)),
			wanted: true},
		"wanted, of another network": {server: server(on, "ASH", entry("m", "assigned")), wanted: true,
			want: "join s"},
		"wanted, recorded, not there": {server: server(on, "ASH"), wanted: true, recorded: ours,
			want: "join s"},
		"ours and unwanted": {server: server(on, "ASH", entry("n", "assigned", address)),
			recorded: ours, unwantedFor: leaveAfter, want: "leave s from n"},
		"ours and unwanted for a moment": {server: server(on, "ASH", entry("n", "assigned", address)),
			recorded: ours, unwantedFor: leaveAfter - 1},
		"ours, unwanted, still joining": {server: server(on, "ASH", entry("n", "in-progress", address)),
			recorded: ours, unwantedFor: time.Hour},
		"ours, given other addresses": {server: server(on, "ASH", entry("n", "assigned", address.Next())),
			recorded: ours, unwantedFor: time.Hour, want: "forget s"},
		"ours, given further addresses": {server: server(on, "ASH", entry("n", "assigned", address.Next(),
			address)), recorded: ours, unwantedFor: time.Hour, want: "leave s from n"},
		"ours, the API omits its addresses": {server: server(on, "ASH", entry("n", "assigned")), recorded: ours,
			unwantedFor: time.Hour, want: "leave s from n"},
		"ours without an address": {server: server(on, "ASH", entry("n", "assigned", address)),
			recorded: &joined{Network: "n"}, unwantedFor: time.Hour, want: "leave s from n"},
		"ours and gone from the network": {server: server(on, "ASH"), recorded: ours, want: "forget s"},
		"gone, but the network still lists it": {server: server(on, "ASH"), recorded: ours, listed: true,
			unwantedFor: time.Hour},
		"ours and gone from the list": {recorded: ours, unwantedFor: leaveAfter, want: "lost s"},
		"gone from one list":          {recorded: ours, unwantedFor: time.Second},
		"joined to a former network": {server: server(on, "ASH", entry("m", "assigned")), wanted: true,
			recorded: &joined{Network: "m"}, unwantedFor: leaveAfter, want: "leave s from m"},
		"has left a former network": {server: server(on, "ASH"), wanted: true, recorded: &joined{Network: "m"},
			want: "forget s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := observed{
				network: network.Network{ID: "n", Location: "ASH"}, servers: map[string]pnap.Server{},
				wanted:      map[string]*corev1.Node{},
				isChanging:  func(string) bool { return test.isChanging },
				unwantedFor: func(string) time.Duration { return test.unwantedFor },
			}
			if test.server != nil {
				p.servers["s"] = *test.server
			}
			if test.wanted {
				p.wanted["s"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(test.name, "n")}}
			}
			if test.recorded != nil {
				p.memberRecord = p.memberRecord.with("s", *test.recorded)
			}
			if test.listed {
				p.network.Members = []network.Member{{ServerID: "s"}}
			}
			var got []string
			for _, each := range decide(p) {
				text := fmt.Sprintf("%v %s", each.kind, each.server)
				if each.network != "" {
					text += " from " + each.network
				}
				got = append(got, text)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestStepsThatTakeAwayComeFirst(t *testing.T) {
	p := observed{
		network: network.Network{ID: "n", Location: "ASH"},
		wanted:  map[string]*corev1.Node{"a": {ObjectMeta: metav1.ObjectMeta{Name: "web"}}},
		servers: map[string]pnap.Server{
			"a": {ID: "a", Hostname: "web", Status: pnap.ServerPoweredOn, Location: "ASH"},
			"b": {ID: "b", Status: pnap.ServerPoweredOn, Location: "ASH",
				PublicNetworks: []pnap.Membership{{Network: "n", Status: "assigned"}}},
			"c": {ID: "c", Status: pnap.ServerPoweredOn, Location: "ASH"},
		},
		memberRecord: memberRecord{}.with("b", joined{Network: "n"}).with("c", joined{Network: "n"}),
		isChanging:   func(string) bool { return false }, unwantedFor: func(string) time.Duration { return time.Hour },
	}
	var got []string
	for _, each := range decide(p) {
		got = append(got, each.kind.String()+" "+each.server)
	}
	if want := "forget c, leave b, join a"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWanted(t *testing.T) {
	const id = "5fa54d1e91867c03a0a7b4a4"
	now := metav1.Now()
	node := func(providerID, edge string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"edge": edge}},
			Spec: corev1.NodeSpec{ProviderID: providerID}}
	}
	leaving := node(contract.ProviderID(id), "true")
	leaving.DeletionTimestamp = &now
	selector := labels.SelectorFromSet(labels.Set{"edge": "true"})
	for name, test := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"selected":         {node(contract.ProviderID(id), "true"), true},
		"not selected":     {node(contract.ProviderID(id), "false"), false},
		"not initialised":  {node("", "true"), false},
		"another provider": {node("aws:///i-1", "true"), false},
		"being deleted":    {leaving, false},
	} {
		got, rivals := wanted(claims([]*corev1.Node{test.node}, selector), nil)
		if (got[id] != nil) != test.want || len(rivals) > 0 {
			t.Errorf("%s: %v, %v", name, got, rivals)
		}
	}
}

// Of several Nodes with one provider ID, the one with the strongest tie to the server counts.
func TestRivals(t *testing.T) {
	const id = "5fa54d1e91867c03a0a7b4a4"
	servers := map[string]pnap.Server{id: {ID: id, Hostname: "web", PrivateIPs: []netip.Addr{
		netip.MustParseAddr("10.0.0.1")}}}
	node := func(name, ip string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			"alpha.kubernetes.io/provided-node-ip": ip}}, Spec: corev1.NodeSpec{ProviderID: contract.ProviderID(id)}}
	}
	for name, test := range map[string]struct {
		nodes []*corev1.Node
		want  string
	}{
		"name before report": {[]*corev1.Node{node("a", "10.0.0.1"), node("web", "")}, "web, not a"},
		"report before none": {[]*corev1.Node{node("a", ""), node("b", "10.0.0.1")}, "b, not a"},
		"by name": {[]*corev1.Node{node("b", "10.0.0.1"), node("a", "10.0.0.1"), node("c", "")},
			"a, not b c"},
	} {
		best, rivals := wanted(claims(test.nodes, labels.Everything()), servers)
		got := best[id].Name + ", not"
		for _, rival := range rivals[id] {
			got += " " + rival.Name
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestUserOfABlock(t *testing.T) {
	addr := netip.MustParseAddr
	p := observed{
		network: network.Network{ID: "n", Members: []network.Member{{ServerID: "a",
			IPs: []netip.Addr{addr("203.0.113.4"), addr("198.51.100.2")}}}},
		servers: map[string]pnap.Server{"b": {ID: "b",
			PublicNetworks: []pnap.Membership{{Network: "other", IPs: []netip.Addr{addr("203.0.113.18")}}}}},
		memberRecord: memberRecord{}.with("c", joined{Network: "n", Address: addr("203.0.113.34")}).with("d",
			joined{Network: "n"}),
	}
	for name, test := range map[string]struct{ cidr, want string }{
		"a member of the network":        {"203.0.113.0/28", "a 203.0.113.4 true"},
		"a server on another network":    {"203.0.113.16/28", "b 203.0.113.18 true"},
		"a server that is about to join": {"203.0.113.32/28", "c 203.0.113.34 true"},
		"none":                           {"203.0.113.48/28", " invalid IP false"},
		"the lowest address of several":  {"203.0.113.0/24", "a 203.0.113.4 true"},
		"a block without addresses":      {"", " invalid IP false"},
	} {
		var b network.Block
		if test.cidr != "" {
			b.CIDR = netip.MustParsePrefix(test.cidr)
		}
		server, address, found := p.user(b)
		if got := fmt.Sprint(server, " ", address, " ", found); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if p.used(b) != found {
			t.Errorf("%s: used is %v", name, p.used(b))
		}
	}
}
