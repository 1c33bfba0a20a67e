// Package lease keeps the agent's own Lease renewed, by which the controller knows that the agent lives.
package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// Period is the time between renewals.
	Period = 30 * time.Second
	// Duration is how long the Lease speaks for the agent: after this silence the controller calls its conditions Unknown.
	Duration = 3 * time.Minute
	// retryPause is the time between attempts while the API server does not take a renewal.
	retryPause = 5 * time.Second
)

// Keeper renews the Lease of one agent.
type Keeper struct {
	// Leases is the client for the namespace of the Lease, kube-system.
	Leases coordinationclient.LeaseInterface
	// NodeName names the Node; the Lease is contract.AgentLeasePrefix and that name.
	NodeName string
	// Node returns the Node, or nil while it is not known. The Lease is owned by the Node and goes with it.
	Node func() *corev1.Node

	// current is the Lease as last written, so that a renewal is one request.
	current *coordinationv1.Lease
}

// Run renews until ctx ends. A failed renewal is logged and tried again soon.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		pause := Period + rand.N(Period/10) - Period/20
		if err := k.Renew(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Renewing the agent's Lease")
			pause = retryPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Renew writes the Lease once, creating it where there is none.
func (k *Keeper) Renew(ctx context.Context) error {
	name := contract.AgentLeasePrefix + k.NodeName
	if k.current == nil {
		existing, err := k.Leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return k.create(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("get Lease %s: %w", name, err)
		}
		k.current = existing
	}
	next := k.current.DeepCopy()
	k.fill(next)
	updated, err := k.Leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		// Whatever changed or removed it, the next attempt looks first.
		k.current = nil
		return fmt.Errorf("renew Lease %s: %w", name, err)
	}
	k.current = updated
	return nil
}

func (k *Keeper) create(ctx context.Context, name string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	k.fill(lease)
	created, err := k.Leases.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Lease %s: %w", name, err)
	}
	k.current = created
	return nil
}

func (k *Keeper) fill(lease *coordinationv1.Lease) {
	now, seconds := metav1.NowMicro(), int32(Duration/time.Second)
	lease.Spec.HolderIdentity = &k.NodeName
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
	if lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
	if node := k.Node(); node != nil && len(lease.OwnerReferences) == 0 {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
}
