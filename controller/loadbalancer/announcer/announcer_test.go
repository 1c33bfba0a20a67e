package announcer

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	early  = "2026-03-01T12:00:00Z"
	later  = "2026-03-01T12:05:00Z"
	macOne = "02:00:00:00:00:01"
	macTwo = "02:00:00:00:00:02"
)

// witness is a Node whose agent reports of 203.0.113.10; identity are its MACs.
func witness(name, identity, report string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		contract.NodeReportedAddresses: `{"203.0.113.10":` + report + `}`,
	}}}
	if identity != "" {
		node.Annotations[contract.NodeReportedIdentity] = fmt.Sprintf(`{"hostname":%q,"addresses":[],"macs":[%q]}`,
			name, identity)
	}
	return node
}

func entrySaid(state, mac, since string, held bool) string {
	return fmt.Sprintf(`{"state":%q,"mac":%q,"held":%t,"since":%q}`, state, mac, held, since)
}

// TestAnnouncedBy: where the agents announce, the Service names the Node that answers and since when; another Node
// takes its place, and in doubt, or where kube-vip announces, no node is named.
func TestAnnouncedBy(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	byA := []*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne, early, true))}
	byB := []*corev1.Node{byA[0], witness("b", macTwo, entrySaid("Answered", macTwo, later, true))}
	byB[0] = witness("a", macOne, entrySaid("Silent", "", later, false))
	silent := []*corev1.Node{byB[0]}
	service := &corev1.Service{}
	for i, step := range []struct {
		announcer   string
		nodes       []*corev1.Node
		name, since string
	}{
		{contract.AnnouncerAgent, nil, "", ""},
		{contract.AnnouncerAgent, byA, "a", early},
		{contract.AnnouncerAgent, []*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne, later, true))}, "a",
			early},
		{contract.AnnouncerAgent, append(byB, witness("c", "", entrySaid("Answered", macTwo, later, false))), "b",
			later},
		{contract.AnnouncerAgent, silent, "", ""},
		{contract.AnnouncerAgent, byA, "a", early},
		{contract.AnnouncerKubeVIP, byA, "", ""},
	} {
		wanted := For(step.announcer, Deps{}).Publish(service, address, "", step.nodes)
		service.Annotations = map[string]string{}
		for name, value := range wanted {
			if text, ok := value.(string); ok {
				service.Annotations[name] = text
			}
		}
		by := service.Annotations[contract.ServiceAnnouncedBy]
		since := service.Annotations[contract.ServiceAnnouncedSince]
		if by != step.name || since != step.since {
			t.Errorf("step %d: announced by %q since %q, want %q since %q", i, by, since, step.name, step.since)
		}
		for _, name := range []string{contract.ServiceAnnouncedBy, contract.ServiceAnnouncedSince} {
			if _, decided := wanted[name]; !decided {
				t.Errorf("step %d: %v, want both annotations to be decided on", i, wanted)
			}
		}
	}
}

// TestOneLeaseForOneAddress: kube-vip elects by the address where several Services may have it, in a namespace that all
// of them know; it is taken back with the address, and where the agents announce.
func TestOneLeaseForOneAddress(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	for sharedAs, want := range map[string]any{"": nil, "shop/front": "kubevip-203.0.113.10",
		"front": "kube-system/kubevip-203.0.113.10"} {
		service := &corev1.Service{}
		published := For(contract.AnnouncerKubeVIP, Deps{}).Publish(service, address, sharedAs, nil)
		if got := published[contract.KubeVIPLease]; got != want {
			t.Errorf("%q: Lease %v, want %v", sharedAs, got, want)
		}
		if want == nil {
			continue
		}
		service.Annotations = map[string]string{contract.KubeVIPLease: fmt.Sprint(want)}
		for name, changed := range map[string]map[string]any{
			"withdrawn":  For(contract.AnnouncerKubeVIP, Deps{}).Withdraw(service, address.String(), nil),
			"the agents": For(contract.AnnouncerAgent, Deps{}).Publish(service, address, sharedAs, nil),
		} {
			if got, written := changed[contract.KubeVIPLease]; !written || got != nil {
				t.Errorf("%q, %s: %v, want the Lease removed", sharedAs, name, changed)
			}
		}
		service.Annotations[contract.KubeVIPLease] = "kubevip-users"
		changed := For(contract.AnnouncerKubeVIP, Deps{}).Withdraw(service, address.String(), nil)
		if _, written := changed[contract.KubeVIPLease]; written {
			t.Errorf("a user's Lease is removed: %v", changed)
		}
	}
}

// TestOneAnnouncer: whichever announces, what another one would read is taken back.
func TestOneAnnouncer(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	for _, name := range append(Kinds(), "") {
		service := &corev1.Service{}
		service.Annotations = map[string]string{contract.KubeVIPAddresses: address.String(),
			contract.ServiceAnnouncedBy: "a", contract.ServiceAnnouncedSince: early}
		published := For(name, Deps{}).Publish(service, address, "", nil)
		wanted := any(nil)
		if name == contract.AnnouncerKubeVIP {
			wanted = address.String()
		}
		if got, written := published[contract.KubeVIPAddresses]; !written || got != wanted {
			t.Errorf("%q publishes %v, want %v for kube-vip", name, published, wanted)
		}
		withdrawn := For(name, Deps{}).Withdraw(service, address.String(), nil)
		if len(withdrawn) != len(service.Annotations) {
			t.Errorf("%q withdraws %v, want all of %v", name, withdrawn, service.Annotations)
		}
		if !For(name, Deps{}).Names(service, address) {
			t.Errorf("%q does not see that the address is named", name)
		}
	}
}
