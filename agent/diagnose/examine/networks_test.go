//go:build linux

package examine

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// TestNodeInTwoNetworks: all are examined unless one is asked for, and an address is examined in its own.
func TestNodeInTwoNetworks(t *testing.T) {
	in := func(name, address string, vlan int) contract.NodeNetwork {
		prefix := netip.MustParsePrefix(address)
		return contract.NodeNetwork{Name: name, ID: name, VLAN: vlan, Member: true,
			Announcer: contract.AnnouncerKubeVIP, IPs: []netip.Addr{prefix.Addr()},
			Blocks: []contract.NetworkBlock{{CIDR: prefix.Masked(), Gateway: prefix.Masked().Addr().Next()}}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Annotations: nodenet.On(
		in("default", "203.0.113.2/29", 56), in("second", "192.0.2.2/29", 57))}}
	m := &machine{}
	examiner := func(network string) *Examiner {
		return New(Config{Node: node.Name, Client: fake.NewClientset(node), Network: network, Timeout: time.Minute,
			Reader: m, Prober: m})
	}
	for network, want := range map[string]struct {
		about  string
		others []diagnose.OtherNetwork
	}{
		"":       {"VLAN 56", []diagnose.OtherNetwork{{Name: "second", Status: check.Fail}}},
		"second": {"VLAN 57", nil},
	} {
		d, err := examiner(network).Examine(t.Context())
		if err != nil || !strings.Contains(d.Network, want.about) || !slices.Equal(d.OtherNetworks, want.others) {
			t.Errorf("%q: %s, beside it %v (%v)", network, d.Network, d.OtherNetworks, err)
		}
	}
	for address, about := range map[string]string{"203.0.113.3": "VLAN 56", "192.0.2.3": "VLAN 57"} {
		d, err := examiner("").ExamineAddress(t.Context(), netip.MustParseAddr(address))
		if err != nil || !strings.Contains(d.Network, about) {
			t.Errorf("%s: %s (%v)", address, d.Network, err)
		}
	}
}
