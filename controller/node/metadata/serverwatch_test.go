package metadata

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// proof is what is known about the servers that are missing, and how often that was asked.
type proof struct {
	gone  bool
	err   error
	asked int
}

func (p *proof) GoneWhileReady(context.Context, *corev1.Node) (bool, error) {
	p.asked++
	return p.gone, p.err
}

// listed is a list of servers that does not change.
type listed map[string]pnap.Server

func (l listed) Recent(context.Context, time.Duration) (instances.List, error) {
	return instances.List{ByID: l}, nil
}

// TestStaleAnnotationsGo: what was published about the server of a Ready Node goes once that server is proven gone, and
// for no lesser reason.
func TestStaleAnnotationsGo(t *testing.T) {
	const id = "60473c2509268bc77fd06d31"
	for name, tc := range map[string]struct {
		servers listed
		ready   corev1.ConditionStatus
		proof   proof
		asked   int
		gone    bool
	}{
		"it exists":  {servers: listed{id: {ID: id}}, ready: corev1.ConditionTrue, proof: proof{gone: true}},
		"it is gone": {ready: corev1.ConditionTrue, proof: proof{gone: true}, asked: 1, gone: true},
		"only reserved": {listed{id: {ID: id, Status: pnap.ServerReserved}}, corev1.ConditionTrue, proof{gone: true},
			1, true},
		"not proven": {ready: corev1.ConditionTrue, asked: 2},
		"the API fails": {ready: corev1.ConditionTrue, proof: proof{gone: true, err: errors.New("503")},
			asked: 2},
		"not ready: may be deleted": {ready: corev1.ConditionUnknown, proof: proof{gone: true}},
	} {
		node := readyNode("a", corev1.ConditionTrue, false)
		node.Annotations[contract.NodeServerID] = id
		node.Annotations["mine"] = "kept"
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady,
			Status: tc.ready})
		client := fake.NewClientset(node)
		factory := informers.NewSharedInformerFactory(client, 0)
		watch := NewServerWatch(client, factory.Core().V1().Nodes(), tc.servers, &tc.proof)
		factory.Start(t.Context().Done())
		if !cache.WaitForCacheSync(t.Context().Done(), watch.synced) {
			t.Fatal("the Nodes are not listed")
		}
		for range 2 {
			if err := watch.sync(testlog.Context(t)); !errors.Is(err, tc.proof.err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		got, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, member := got.Annotations[contract.NodePublicNetworks]
		if (got.Annotations[contract.NodeServerMissing] != "") != tc.gone || member == tc.gone ||
			got.Annotations["mine"] != "kept" || tc.proof.asked < tc.asked || tc.asked == 0 && tc.proof.asked > 0 {
			t.Errorf("%s: annotations %v, asked %d times", name, got.Annotations, tc.proof.asked)
		}
	}
}
