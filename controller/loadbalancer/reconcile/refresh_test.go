package reconcile

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// silent is an account whose list of blocks cannot be read.
type silent struct{ account.Cloud }

var errSilent = errors.New("no answer")

func (silent) Blocks(context.Context, map[string]string) ([]network.Block, error) {
	return nil, errSilent
}

// An account that stops answering between the first observation and the second one is an error like any other.
func TestNothingIsDecidedFromAFailedObservation(t *testing.T) {
	kube := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "c1"}})
	none := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	b := New(Config{Account: account.New(account.Config{Cloud: silent{}}), Kube: kube,
		Ledgers: &allocation.Store{}, Nodes: corelisters.NewNodeLister(none),
		Services: corelisters.NewServiceLister(none)})
	before := plan.ServicePlan{Step: ipblock.Step{Action: ipblock.Delete}}
	o := plan.Observed{Service: &corev1.Service{}}
	_, _, err := b.refresh(testlog.Context(t), scope{}.fresh(b.config.Now()), o, before)
	if !errors.Is(err, errSilent) {
		t.Errorf("error %v, want %v", err, errSilent)
	}
}
