package overview

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

var onAddress = netip.MustParseAddr("203.0.113.2")

// holderOf is a Node whose agent reported that it holds the address since then.
func holderOf(t *testing.T, name string, since time.Time, state contract.AddressState) corev1.Node {
	t.Helper()
	reported, err := contract.ReportedAddresses{onAddress: {State: state, Held: true, MAC: "02:00:00:00:00:0" + name,
		Since: since}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	annotations := nodenet.Member("n")
	annotations[contract.NodeReportedAddresses] = reported
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.NodeSpec{ProviderID: contract.ProviderID("60473c2509268bc77fd06d31")},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue, Reason: "Ready"}}},
	}
}

func renewed(name string, ago time.Duration) coordinationv1.Lease {
	at := metav1.NewMicroTime(now.Add(-ago))
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: contract.AgentLeasePrefix + name},
		Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
}

// A minute after a node died, its report is outdated, and another node answers for its address. Whatever is known of
// that, the column ON names who answers now.
func TestOutdatedReportsLookOutdated(t *testing.T) {
	service := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
			Annotations: map[string]string{contract.ServiceIPAddress: onAddress.String()}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{
			{Type: contract.ServiceConditionAddressPublished, Status: metav1.ConditionTrue, Reason: "Published"},
			{Type: contract.ServiceConditionAnnounced, Status: metav1.ConditionTrue, Reason: "Answered"}}},
	}
	const answered, duplicate = contract.AddressAnswered, contract.AddressDuplicate
	dead := holderOf(t, "a", now.Add(-time.Hour), answered)
	heir := holderOf(t, "b", now.Add(-50*time.Second), answered)
	unreachable := dead.DeepCopy()
	unreachable.Status.Conditions = append(unreachable.Status.Conditions,
		corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown})
	for name, tc := range map[string]struct {
		nodes  []corev1.Node
		agents []coordinationv1.Lease
		on     []string
		// outdated are the Nodes of the problem, shown is part of what is printed.
		outdated []string
		shown    string
	}{
		"all alive": {[]corev1.Node{dead}, []coordinationv1.Lease{renewed("a", 31*time.Second)}, []string{"a"}, nil,
			"no problems found"},
		"dead for a minute": {[]corev1.Node{dead, heir}, []coordinationv1.Lease{renewed("a", 65*time.Second),
			renewed("b", time.Second)}, []string{"b"}, []string{"a"}, "? Ready (65s ago)"},
		"dead, no heir": {[]corev1.Node{dead}, []coordinationv1.Lease{renewed("a", 65*time.Second)}, nil, []string{"a"},
			"? Answered (outdated)"},
		"dead a moment ago": {[]corev1.Node{dead, heir}, []coordinationv1.Lease{renewed("a", 20*time.Second),
			renewed("b", time.Second)}, []string{"b"}, nil, "no problems found"},
		"unreachable, no Leases": {[]corev1.Node{*unreachable, heir}, nil, []string{"b"}, []string{"a"},
			"? Ready (outdated)"},
		"two answer": {[]corev1.Node{dead, holderOf(t, "b", now, duplicate)}, nil, []string{"a", "b"}, nil, "a,b"},
	} {
		o := Make(Facts{Now: now, Nodes: tc.nodes, Agents: tc.agents, Services: []corev1.Service{service},
			Leader: leaderNow()})
		var outdated []string
		for _, p := range o.Problems {
			if p.Kind == KindOutdated {
				outdated = append(outdated, p.Objects...)
			}
		}
		var printed strings.Builder
		if err := PrintStatus(&printed, text.Style{Width: 200, Unicode: true}, o); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(o.Services[0].On, tc.on) || !slices.Equal(outdated, tc.outdated) ||
			!strings.Contains(printed.String(), tc.shown) {
			t.Errorf("%s: on %q, want %q; outdated %q, want %q\n%s", name, o.Services[0].On, tc.on, outdated,
				tc.outdated, &printed)
		}
	}
}

func leaderNow() *coordinationv1.Lease {
	holder := "ccm"
	at := metav1.NewMicroTime(now)
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at}}
}

// A Ready Node whose server was replaced has a problem that says what to do.
func TestReplacedServer(t *testing.T) {
	node := holderOf(t, "n", now, contract.AddressAnswered)
	node.Annotations = map[string]string{contract.NodeServerMissing: "2026-03-01T11:00:00Z"}
	o := Make(Facts{Now: now, Nodes: []corev1.Node{node}, Leader: leaderNow()})
	if len(o.Problems) != 1 || o.Problems[0].Kind != KindServer ||
		!strings.Contains(o.Problems[0].Message, "60473c2509268bc77fd06d31, which no longer exists") ||
		!strings.Contains(o.Problems[0].Message, "kubectl delete node n") {
		t.Errorf("%+v", o.Problems)
	}
}

// A cluster without workers, as kubeadm makes it, has a problem although everything else is healthy.
func TestNoNodeMayCarry(t *testing.T) {
	node := holderOf(t, "cp-1", now, contract.AddressAnswered)
	node.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	o := Make(Facts{Now: now, Nodes: []corev1.Node{node}, Leader: leaderNow()})
	want := "kubectl label node cp-1 node.kubernetes.io/exclude-from-external-load-balancers-"
	if len(o.Problems) != 1 || o.Problems[0].Kind != KindCarrier || !strings.Contains(o.Problems[0].Message, want) ||
		!strings.Contains(o.Nodes[0].Obstacle, "exclude-from-external") {
		t.Errorf("%+v", o)
	}
	node.Labels = nil
	if o = Make(Facts{Now: now, Nodes: []corev1.Node{node}, Leader: leaderNow()}); len(o.Problems) > 0 {
		t.Errorf("%+v", o.Problems)
	}
}
