//go:build linux

package examine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestAgreement: where the agents announce, the ConfigMap shows which; otherwise it is not read.
func TestAgreement(t *testing.T) {
	const network = "60473c2509268bc77fd06d29"
	one := netip.MustParseAddr("203.0.113.3")
	two := netip.MustParseAddr("203.0.113.4")
	unowned := netip.MustParseAddr("203.0.113.5")
	view := &election.View{Number: 7, Changed: 7, Members: []string{"srv-a", "srv-b"},
		Owners: map[netip.Addr]election.Owner{
			one: {Node: "srv-a", Epoch: 3, Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}, two: {Node: "srv-b",
				Epoch: 7}, unowned: {Epoch: 7},
		}}
	encoded, err := view.Encode()
	if err != nil {
		t.Fatal(err)
	}
	stored := func(content string) *fake.Clientset {
		return fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: contract.AnnouncerView,
				ResourceVersion: "1"},
			Data: map[string]string{network: content},
		})
	}
	for name, tc := range map[string]struct {
		client    *fake.Clientset
		announcer string
		owned     []netip.Addr
		fails     bool
	}{
		"agents announce":    {client: stored(encoded), announcer: contract.AnnouncerAgent, owned: []netip.Addr{one}},
		"kube-vip announces": {client: stored(encoded), announcer: contract.AnnouncerKubeVIP},
		"no view yet":        {client: fake.NewClientset(), announcer: contract.AnnouncerAgent},
		"edited by hand":     {client: stored("{"), announcer: contract.AnnouncerAgent, fails: true},
	} {
		e := &Examiner{Config: Config{Client: tc.client, Timeout: time.Minute}}
		got, err := e.agreement(t.Context(),
			observed{expected: check.Expected{Network: contract.NodeNetwork{Announcer: tc.announcer,
				ID: network}}})
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.owned, ownedBy(got, "srv-a"), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: announced by srv-a (-want +got):\n%s", name, diff)
		}
	}
	want := []diagnose.Holder{{Node: "srv-a", Source: "ConfigMap phoenixnap-announcer (since 2026-03-01T12:00:00Z)"}}
	if diff := cmp.Diff(want, agreed(view, one)); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
	if got := agreed(view, unowned); got != nil {
		t.Errorf("%s is announced by %v, want no node", unowned, got)
	}
}
