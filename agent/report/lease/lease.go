// Package lease keeps the agent's own Lease renewed, which shows the controller that the agent is alive.
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
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// Period is the time between renewals, give or take a twentieth.
	Period = 30 * time.Second
	// IsolatedPeriod is the time between renewals while other nodes may take this one for off. The Lease of a Node,
	// which they look at as well, is valid four times as long.
	IsolatedPeriod = 10 * time.Second
	// Duration is how long the Lease is valid: when it expires, the controller sets the conditions of the agent to
	// Unknown.
	Duration = 3 * time.Minute
	// firstRetry and lastRetry bound the pause while the API server does not take a renewal; it doubles in between, and
	// up to a quarter of it is chance, so that the agents do not meet an API server that comes back all at once.
	firstRetry = 2 * time.Second
	lastRetry  = 20 * time.Second
	// nodePause is the time between reads of the Node while there is none.
	nodePause = time.Second
	// renewTimeout bounds one attempt.
	renewTimeout = 10 * time.Second
)

// Renewer renews the Lease of one agent.
type Renewer struct {
	// Leases is the client for the namespace of the Lease, kube-system.
	Leases typedcoordinationv1.LeaseInterface
	// NodeName names the Node; the Lease is contract.AgentLeasePrefix and that name.
	NodeName string
	// Node returns the Node, or nil while it is not known. The Lease is owned by the Node and goes with it, and there
	// is none without a Node.
	Node func() *corev1.Node
	// Isolated reports whether other nodes may take this one for off, see speaker.State, and Wake that this has begun.
	// They may be nil.
	Isolated func() bool
	Wake     loop.Wake
	// OnRenew, where it is not nil, is called after each attempt with its error.
	OnRenew func(error)

	// current is the Lease as last written, so that a renewal is one request.
	current *coordinationv1.Lease
}

// Run renews until ctx ends. A failed renewal is logged and tried again soon.
func (r *Renewer) Run(ctx context.Context) error {
	failures := 0
	var due time.Time
	return r.Wake.Run(ctx, IsolatedPeriod/2, func(ctx context.Context) (pause time.Duration) {
		if early := time.Until(due); early > 0 && !r.isolated() { // no longer, as when another node has just died
			return early
		}
		defer func() { due = time.Now().Add(pause) }()
		if r.Node() == nil {
			return nodePause
		}
		if err := r.attempt(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to renew the agent's Lease")
			pause = loop.Backoff(firstRetry, lastRetry, failures)
			failures++
			return pause - rand.N(pause/4)
		}
		failures = 0
		if r.isolated() {
			return loop.Jitter(IsolatedPeriod, 20)
		}
		return loop.Jitter(Period, 20)
	})
}

func (r *Renewer) isolated() bool { return r.Isolated != nil && r.Isolated() }

func (r *Renewer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	err := r.renew(ctx)
	if r.OnRenew != nil {
		r.OnRenew(err)
	}
	return err
}

// renew writes the Lease once, creating it where there is none.
func (r *Renewer) renew(ctx context.Context) error {
	name := contract.AgentLeasePrefix + r.NodeName
	if r.current == nil {
		existing, err := r.Leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return r.create(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("get Lease %s: %w", name, err)
		}
		r.current = existing
	}
	next := r.current.DeepCopy()
	r.fill(next)
	updated, err := r.Leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		// Whatever changed or removed it, the next attempt reads first.
		r.current = nil
		return fmt.Errorf("renew Lease %s: %w", name, err)
	}
	r.current = updated
	return nil
}

func (r *Renewer) create(ctx context.Context, name string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.fill(lease)
	created, err := r.Leases.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Lease %s: %w", name, err)
	}
	r.current = created
	return nil
}

// fill sets the fields of the Lease. An owner that no longer exists would have the garbage collector delete the Lease,
// so it is replaced when another Node has taken the name.
func (r *Renewer) fill(lease *coordinationv1.Lease) {
	now := metav1.NowMicro()
	seconds := int32(Duration / time.Second)
	lease.Spec.HolderIdentity = &r.NodeName
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
	if lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
	if node := r.Node(); node != nil {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name,
			UID: node.UID}}
	}
}
