//go:build linux

package examiner

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

var first, second = netip.MustParseAddr("203.0.113.3"), netip.MustParseAddr("203.0.113.4")

// cluster returns a client of a cluster with Nodes and the Leases of kubelets.
func cluster(t *testing.T) *fake.Clientset {
	t.Helper()
	client := kubefake.NewStore().Client()
	for name, taint := range map[string]string{
		"healthy": "", "out": corev1.TaintNodeOutOfService, "down": cloudproviderapi.TaintNodeShutdown, "without": "",
		"unready": corev1.TaintNodeUnreachable,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if taint != "" {
			node.Spec.Taints = []corev1.Taint{{Key: taint, Effect: corev1.TaintEffectNoExecute}}
		}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if name == "without" {
			continue
		}
		seconds := int32(60)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
		if _, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), lease,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return client
}

// unclaimed claims nothing.
func unclaimed(context.Context, []netip.Addr) (map[netip.Addr]bool, error) { return nil, nil }

func examine(t *testing.T, x *Examiner, names ...string) election.Examined {
	t.Helper()
	members := map[string][]netip.Addr{}
	for _, name := range names {
		members[name] = nil
	}
	return x.Examine(t.Context(), members)
}

// TestExamine checks what Nodes and Leases show.
func TestExamine(t *testing.T) {
	client := cluster(t)
	x := &Examiner{Client: client, Claimed: unclaimed}
	got := examine(t, x, "healthy", "out", "down", "without", "unready", "deleted")
	for name, want := range map[string]election.Evidence{
		"healthy": {Duration: time.Minute},
		"unready": {Duration: time.Minute},
		"out":     {Off: true, Duration: time.Minute},
		"down":    {Off: true, Duration: time.Minute},
		"without": {},
		"deleted": {Off: true},
	} {
		evidence, found := got[name]
		hasLease := want.Duration != 0
		if renewal := evidence.Renewal; !found || (renewal != "") != hasLease {
			t.Errorf("%s: found %t, renewal %q, want one: %t", name, found, renewal, hasLease)
		}
		evidence.Renewal = ""
		if evidence != want {
			t.Errorf("%s: %+v, want %+v", name, evidence, want)
		}
	}
}

// TestServerLeftTheNetwork: what the controller published of a Node shows that it cannot answer, if it can be read.
func TestServerLeftTheNetwork(t *testing.T) {
	client := cluster(t)
	x := &Examiner{Client: client, Network: "n", Claimed: unclaimed}
	for name, test := range map[string]struct {
		annotations map[string]string
		off         bool
	}{
		"member":          {annotations: nodenet.Member("n")},
		"of another":      {nodenet.Member("other"), true},
		"no member":       {nodenet.On(contract.NodeNetwork{ID: "n"}), true},
		"of none":         {map[string]string{contract.NodePublicNetworks: "[]"}, true},
		"not published":   {annotations: nil},
		"unreadable list": {annotations: map[string]string{contract.NodePublicNetworks: "["}},
	} {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "healthy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Annotations = test.annotations
		if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := examine(t, x, "healthy")["healthy"]; got.Off != test.off {
			t.Errorf("%s: off is %t", name, got.Off)
		}
		if got := examine(t, &Examiner{Client: client, Claimed: unclaimed}, "healthy")["healthy"]; got.Off {
			t.Errorf("%s: off for an agent that knows no network", name)
		}
	}
}

// TestRenewal: evidence differs after a kubelet has renewed its Lease, and only then.
func TestRenewal(t *testing.T) {
	client := cluster(t)
	x := &Examiner{Client: client, Claimed: unclaimed}
	before := examine(t, x, "healthy")
	if again := examine(t, x, "healthy"); !maps.Equal(before, again) {
		t.Errorf("%v, and then %v, although nothing was renewed", before, again)
	}
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(t.Context(), "healthy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	lease.Spec.RenewTime = &now
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if after := examine(t, x, "healthy"); maps.Equal(before, after) {
		t.Errorf("%v before and after the kubelet renewed its Lease", before)
	}
}

// TestAgentLives: evidence differs as well after an agent has renewed its own Lease, whose kubelet may have ended.
func TestAgentLives(t *testing.T) {
	client := cluster(t)
	x := &Examiner{Client: client, Claimed: unclaimed}
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	before := examine(t, x, "healthy")
	for range 2 {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: contract.AgentLeasePrefix + "healthy"}}
		_ = leases.Delete(t.Context(), lease.Name, metav1.DeleteOptions{}) // there is none at first
		if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		after := examine(t, x, "healthy")
		if maps.Equal(before, after) {
			t.Errorf("%v before and after the agent renewed its Lease", before)
		}
		before = after
	}
}

// TestClaimed: addresses are asked about once, and a claim counts for the member whose address it is.
func TestClaimed(t *testing.T) {
	asked := 0
	x := &Examiner{Client: cluster(t), Claimed: func(_ context.Context, all []netip.Addr) (map[netip.Addr]bool, error) {
		asked += len(all)
		return map[netip.Addr]bool{first: true}, nil
	}}
	got := x.Examine(t.Context(), map[string][]netip.Addr{"healthy": {first}, "unready": {second}})
	if asked != 2 || !got["healthy"].Claimed || got["unready"].Claimed {
		t.Errorf("%d addresses were asked about: %v; want both, and only %s claimed", asked, got, first)
	}
}

// TestUnknown: about a member of which something cannot be learned nothing is said.
func TestUnknown(t *testing.T) {
	refuse := func(resource, name string) func(*fake.Clientset) {
		return func(c *fake.Clientset) {
			c.PrependReactor("get", resource, func(a ktesting.Action) (bool, runtime.Object, error) {
				get, ok := a.(ktesting.GetAction)
				return ok && get.GetName() == name, nil, errors.New("refused")
			})
		}
	}
	wire := errors.New("the interface is down")
	for name, tc := range map[string]struct {
		change func(*fake.Clientset)
		wire   error
		want   int
	}{
		"all answers":           {func(*fake.Clientset) {}, nil, 2},
		"one Node":              {refuse("nodes", "out"), nil, 1},
		"the Lease of a Node":   {refuse("leases", "out"), nil, 1},
		"the Lease of an agent": {refuse("leases", contract.AgentLeasePrefix+"out"), nil, 1},
		"the network does not":  {func(*fake.Clientset) {}, wire, 0},
	} {
		client := cluster(t)
		tc.change(client)
		x := &Examiner{Client: client, Claimed: func(context.Context, []netip.Addr) (map[netip.Addr]bool, error) {
			return nil, tc.wire
		}}
		if got := examine(t, x, "healthy", "out"); len(got) != tc.want {
			t.Errorf("%s: %v, want evidence about %d members", name, got, tc.want)
		}
	}
}
