package instances

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func newNode(name string, identities ...contract.Identity) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, identity := range identities {
		raw, err := json.Marshal(identity)
		if err != nil {
			panic(err)
		}
		node.Annotations[contract.NodeReportedIdentity] = string(raw)
	}
	return node
}

//proves:known-bugs/same-name
func TestMatch(t *testing.T) {
	server := func(id, hostname, ip string) pnap.Server {
		return pnap.Server{ID: id, Hostname: hostname, PrivateIPs: addrs(ip), Status: pnap.ServerPoweredOn,
			Location: "ASH"}
	}
	with := func(s pnap.Server, status pnap.ServerStatus) pnap.Server { s.Status = status; return s }
	reports := func(ips ...string) contract.Identity { return contract.Identity{Addresses: addrs(ips...)} }
	a := server("a", "web", "10.0.0.1")
	b := server("b", "WEB", "10.0.0.2")
	c := server("c", "web.example", "10.0.0.3")
	tests := map[string]struct {
		node    *corev1.Node
		servers []pnap.Server
		claimed map[string]string
		want    string
		reason  string
		text    string
	}{
		"exact before folded and short": {node: newNode("web"), servers: []pnap.Server{b, c, a}, want: "a"},
		"without domain before folded":  {node: newNode("web"), servers: []pnap.Server{b, c}, want: "c"},
		"folded": {node: newNode("web"),
			servers: []pnap.Server{b, server("f", "wEb.example", "10.0.0.5")}, want: "b"},
		"folded and without domain": {node: newNode("web"),
			servers: []pnap.Server{server("f", "wEb.example", "10.0.0.5")}, want: "f"},
		"server with domain":        {node: newNode("web"), servers: []pnap.Server{c}, want: "c"},
		"node with domain":          {node: newNode("web.example"), servers: []pnap.Server{b}, want: "b"},
		"both with the same domain": {node: newNode("web.example"), servers: []pnap.Server{a, c}, want: "c"},
		"two domains are two machines": {node: newNode("web.elsewhere"), servers: []pnap.Server{c},
			reason: ReasonServerNotFound},
		"two of one name": {node: newNode("web"), servers: []pnap.Server{a,
			server("d", "web", "10.0.0.4")}, reason: ReasonServerAmbiguous, text: "a (web in ASH), d (web in ASH)"},
		"two of one name, address decides": {node: newNode("web", reports("10.0.0.4")),
			servers: []pnap.Server{a, server("d", "web", "10.0.0.4")}, want: "d"},
		"by address": {node: newNode("other", reports("10.0.0.2", "fe80::1")),
			servers: []pnap.Server{a, b, c}, want: "b"},
		"by mapped address": {node: newNode("other", reports("::ffff:10.0.0.2")),
			servers: []pnap.Server{a, b, c}, want: "b"},
		"two have reported addresses": {node: newNode("other", reports("10.0.0.1", "10.0.0.2")),
			servers: []pnap.Server{a, b}, reason: ReasonServerAmbiguous},
		"by server ID": {node: newNode("other", contract.Identity{ServerID: "c",
			Addresses: addrs("10.0.0.1")}), servers: []pnap.Server{a, b, c}, want: "c"},
		"claimed by another Node": {node: newNode("web"), servers: []pnap.Server{a},
			claimed: map[string]string{"a": "web-old"}, reason: ReasonServerNotFound,
			text: "a (the server of Node web-old)"},
		"claimed does not block free": {node: newNode("web"), servers: []pnap.Server{a, b},
			claimed: map[string]string{"a": "web-old"}, want: "b"},
		"reserved is not a machine": {node: newNode("web"), servers: []pnap.Server{with(a, pnap.ServerReserved)},
			reason: ReasonServerNotFound, text: "a (status reserved)"},
		"deleting is not a machine": {node: newNode("web"), servers: []pnap.Server{with(a, pnap.ServerDeleting)},
			reason: ReasonServerNotFound},
		"unknown status is a machine": {node: newNode("web"), servers: []pnap.Server{with(a, "quantum")}, want: "a"},
		"no hostname matches nothing": {node: newNode("web"), servers: []pnap.Server{server("e", "", "10.0.0.9")},
			reason: ReasonServerNotFound},
		"none at all": {node: newNode("web"), reason: ReasonServerNotFound,
			text: "no phoenixNAP server of the account has the hostname \"web\""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			byID := map[string]pnap.Server{}
			for _, s := range test.servers {
				byID[s.ID] = s
			}
			got, err := match(test.node, byID, test.claimed)
			if test.reason == "" {
				if err != nil || got.ID != test.want {
					t.Fatalf("got %q, %v; want %q", got.ID, err, test.want)
				}
				return
			}
			var failure *matchError
			if !errors.As(err, &failure) || failure.reason != test.reason ||
				!strings.Contains(failure.text, test.text) {
				t.Errorf("got %q, %v; want reason %s and text %q", got.ID, err, test.reason, test.text)
			}
		})
	}
}

func TestUnreadableIdentityIsNoIdentity(t *testing.T) {
	node := newNode("x")
	node.Annotations[contract.NodeReportedIdentity] = `{"addresses":["no address"]}`
	if got := reportedIdentity(node); got.serverID != "" || len(got.addresses) != 0 {
		t.Errorf("got %+v", got)
	}
}
