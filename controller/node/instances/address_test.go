package instances

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/node/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

//proves:known-bugs/block-as-external
//proves:known-bugs/ranges-and-ipv6
//proves:known-bugs/node-ip
func TestNodeAddresses(t *testing.T) {
	membership := func(status string, ips ...string) []pnap.Membership {
		return []pnap.Membership{{Network: "n", Status: status, IPs: addrs(ips...)}}
	}
	own := pnap.Server{
		PrivateIPs: addrs("10.0.0.11"), PublicIPs: addrs("198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4",
			"203.0.113.2", "2001:db8::2"),
		GatewayAddress: addrs("198.51.100.1")[0], PublicNetworks: membership("assigned", "203.0.113.2"),
	}
	tests := map[string]struct {
		server   pnap.Server
		nodeIP   string
		identity []contract.Identity
		want     string
	}{
		"public and private: the first of the own block": {server: own,
			want: "Hostname=n InternalIP=10.0.0.11 ExternalIP=198.51.100.2 ExternalIP=2001:db8::2 " +
				"ExternalIP=203.0.113.2"},
		"what the machine reports counts": {server: own,
			identity: []contract.Identity{{Addresses: addrs("10.0.0.11", "198.51.100.4")}},
			want:     "Hostname=n InternalIP=10.0.0.11 ExternalIP=198.51.100.4 ExternalIP=203.0.113.2"},
		"private only": {server: pnap.Server{PrivateIPs: addrs("10.0.0.11")}, want: "Hostname=n InternalIP=10.0.0.11"},
		"public only": {server: pnap.Server{PublicIPs: addrs("198.51.100.2")},
			want: "Hostname=n ExternalIP=198.51.100.2"},
		"no network": {server: pnap.Server{NetworkType: "NONE"}, want: "Hostname=n"},
		"no network, reported": {server: pnap.Server{NetworkType: "NONE"},
			identity: []contract.Identity{{Addresses: addrs("203.0.113.10", "192.168.7.2", "192.168.7.1")}},
			want:     "Hostname=n InternalIP=192.168.7.1 InternalIP=192.168.7.2"},
		"membership not in place yet": {server: pnap.Server{PrivateIPs: addrs("10.0.0.11"),
			PublicNetworks: membership("in-progress", "203.0.113.2")},
			want: "Hostname=n InternalIP=10.0.0.11"},
		"known node IP": {server: own, nodeIP: "10.0.0.11",
			want: "Hostname=n InternalIP=10.0.0.11 ExternalIP=198.51.100.2 ExternalIP=2001:db8::2 " +
				"ExternalIP=203.0.113.2"},
		"private node IP is kept": {server: pnap.Server{PrivateIPs: addrs("10.0.0.11")}, nodeIP: "192.168.0.5",
			want: "Hostname=n InternalIP=10.0.0.11 InternalIP=192.168.0.5"},
		"public node IP is kept": {server: own, nodeIP: "198.51.100.4",
			want: "Hostname=n InternalIP=10.0.0.11 ExternalIP=198.51.100.2 ExternalIP=2001:db8::2 " +
				"ExternalIP=203.0.113.2 ExternalIP=198.51.100.4"},
		"node IP of the shared address space": {server: own, nodeIP: "100.64.0.11",
			want: "Hostname=n InternalIP=10.0.0.11 InternalIP=100.64.0.11 ExternalIP=198.51.100.2 " +
				"ExternalIP=2001:db8::2 ExternalIP=203.0.113.2"},
		"two node IPs": {server: pnap.Server{NetworkType: "NONE"}, nodeIP: "10.9.0.1,fd00::1",
			want: "Hostname=n InternalIP=10.9.0.1 InternalIP=fd00::1"},
		"unreadable node IP": {server: pnap.Server{PrivateIPs: addrs("10.0.0.11")}, nodeIP: "x",
			want: "Hostname=n InternalIP=10.0.0.11"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", test.identity...)
			if test.nodeIP != "" {
				node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr] = test.nodeIP
			}
			got := nodeAddresses(node, test.server)
			if diff := cmp.Diff(test.want, render(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if test.nodeIP != "" && test.nodeIP != "x" {
				if _, err := helpers.GetNodeAddressesFromNodeIP(test.nodeIP, got); err != nil {
					t.Errorf("the framework rejects the addresses: %v", err)
				}
			}
		})
	}
}

// TestWhatTheKubeletNamesIsInternal: whatever range --node-ip is of, it is external only if the API lists it as public.
// So the server's public addresses stay what they are.
func TestWhatTheKubeletNamesIsInternal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	server := pnap.Server{PrivateIPs: addrs("10.0.0.11"), PublicIPs: addrs("198.51.100.2", "2001:db8::2")}
	edges := addrs("100.64.0.0", "100.127.255.255", "100.63.255.255", "172.31.0.1", "172.32.0.1", "192.168.1.1",
		"9.9.9.9", "fd00::1", "2001:db8::3", "198.51.100.2", "10.0.0.11")
	for i := range 5000 {
		var ip netip.Addr
		switch {
		case i < len(edges):
			ip = edges[i]
		case i%2 == 0:
			ip = netip.AddrFrom4([4]byte{byte(1 + random.IntN(223)), byte(random.IntN(256)), 1, 2})
		default:
			ip = netip.AddrFrom16([16]byte{0x20, byte(random.IntN(256)), 15: byte(random.IntN(256))})
		}
		node := newNode("n")
		node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr] = ip.String()
		all := nodeAddresses(node, server)
		named, err := helpers.GetNodeAddressesFromNodeIP(ip.String(), all)
		if err != nil {
			t.Fatalf("%s: the framework rejects the addresses: %v", ip, err)
		}
		kind := corev1.NodeInternalIP
		if slices.Contains(server.PublicIPs, ip) {
			kind = corev1.NodeExternalIP
		}
		if !slices.Contains(named, corev1.NodeAddress{Type: kind, Address: ip.String()}) ||
			kind == corev1.NodeInternalIP && !slices.Contains(named, corev1.NodeAddress{Type: corev1.NodeExternalIP,
				Address: "198.51.100.2"}) {
			t.Fatalf("%s: %s", ip, render(named))
		}
	}
}

func render(addresses []corev1.NodeAddress) string {
	parts := make([]string, len(addresses))
	for i, address := range addresses {
		parts[i] = string(address.Type) + "=" + address.Address
	}
	return strings.Join(parts, " ")
}

func TestHostnameIsTheKubelets(t *testing.T) {
	node := newNode("n")
	node.Labels = map[string]string{corev1.LabelHostname: "machine"}
	if got := nodeAddresses(node, pnap.Server{Hostname: "renamed-in-portal"})[0].Address; got != "machine" {
		t.Errorf("hostname %q", got)
	}
}

//proves:known-bugs/labels-once
func TestLabels(t *testing.T) {
	got := Labels(pnap.Server{OS: "ubuntu/jammy", NetworkType: "PRIVATE_ONLY", Location: "ASH", Type: "s2.c1.medium"})
	want := map[string]string{
		contract.NodeOS: "ubuntu-jammy", contract.NodeNetworkType: "PRIVATE_ONLY", contract.NodeLocation: "ASH",
		contract.NodeServerType: "s2.c1.medium",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Labels(pnap.Server{OS: "///"}); len(got) != 0 {
		t.Errorf("unusable values: got %v", got)
	}
}

//proves:known-bugs/labels-once
func FuzzLabelValue(f *testing.F) {
	for _, seed := range []string{"ubuntu/jammy", "", "--", strings.Repeat("é", 80),
		"x" + strings.Repeat("-", 70) + "y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if complaints := validation.IsValidLabelValue(labelValue(raw)); len(complaints) > 0 {
			t.Errorf("labelValue(%q) = %q: %v", raw, labelValue(raw), complaints)
		}
	})
}
