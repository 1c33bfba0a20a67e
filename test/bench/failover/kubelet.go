//go:build linux

package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// A kubelet renews the Lease of its Node this often by default, and says that it is valid for this long.
	renewEvery    = 10 * time.Second
	leaseDuration = int32(40)
)

// kubelets stand for those of the nodes: each renews the Lease of its Node while the node has power.
type kubelets struct {
	kube  kubernetes.Interface
	nodes int

	mu  sync.Mutex
	off map[int]bool
}

// set says whether a node has power.
func (k *kubelets) set(i int, on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off[i] = !on
}

func (k *kubelets) isOff(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.off[i]
}

// register makes the Nodes and their Leases, as kubelets do when they start.
func (k *kubelets) register(ctx context.Context) error {
	for i := range k.nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
		if _, err := k.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("register Node %s: %w", node.Name, err)
		}
		if err := k.renew(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// run renews the Leases until ctx ends. A renewal that fails is made up for by the next one.
func (k *kubelets) run(ctx context.Context) {
	for loop.Sleep(ctx, renewEvery) {
		for i := range k.nodes {
			if !k.isOff(i) {
				_ = k.renew(ctx, i)
			}
		}
	}
}

func (k *kubelets) renew(ctx context.Context, i int) error {
	name := nodeName(i)
	now := metav1.NowMicro()
	seconds := leaseDuration
	wanted := coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	leases := k.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: wanted}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		lease.Spec = wanted
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the Lease of Node %s: %w", name, err)
	}
	return nil
}
