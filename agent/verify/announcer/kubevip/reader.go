package kubevip

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// slowPause is the time between reads of the Lease for all Services where each Service has one that is alive.
	slowPause = 5 * time.Minute
	// memory is how long an unused Lease is remembered.
	memory = 10 * time.Minute
	// timeout bounds one request.
	timeout = 5 * time.Second
)

// Reader reads Leases by name, each once in Pause; and a few times more, within bounds, when something was seen that
// casts doubt on what is known of it. It never lists or watches them: a thousand agents would each receive every
// renewal in the cluster. It is safe for concurrent use.
type Reader struct {
	leases coordinationclient.LeasesGetter
	global string
	node   string
	// onRead is called after Leases were read.
	onRead func()
	wake   loop.Wake

	mu      sync.Mutex
	records map[string]*record
}

// NewReader returns a reader; it starts nothing. global is the Key of kube-vip's Lease for all Services. node, whose
// clock is ours, may be empty. onRead is called after Run has read Leases; it must not block; may be nil.
func NewReader(leases coordinationclient.LeasesGetter, global, node string, onRead func()) *Reader {
	if onRead == nil {
		onRead = func() {}
	}
	return &Reader{
		leases: leases, global: global, node: strings.ToLower(node),
		onRead: onRead, wake: loop.NewWake(), records: map[string]*record{},
	}
}

// Run reads what Of requests, until ctx ends. An API server that does not answer delays only Run.
func (r *Reader) Run(ctx context.Context) error {
	for r.wake.Wait(ctx, r.pause()) != loop.Ended {
		keys := r.wanted()
		for _, key := range keys {
			r.fetch(ctx, key)
		}
		if len(keys) > 0 && ctx.Err() == nil {
			r.onRead()
		}
	}
	return nil
}

// Of returns what is known of the election for a Service, and makes Run read it again when that is old. evidence is
// when something related to it changed last on the wire or in the kernel: what was read before is read again soon,
// until it is known whether the Lease is renewed. It may be zero.
func (r *Reader) Of(service *corev1.Service, evidence time.Time) Lease {
	early := false
	lease := r.election(service, func(key string, every time.Duration) Lease {
		known, sooner := r.peek(key, every, evidence)
		early = early || sooner
		return known
	})
	if early { // once both Leases are requested: Run then reads them together and calls onRead once
		r.wake.Signal()
	}
	return lease
}

// Look is Of for callers without Run: it reads what is old before it returns.
func (r *Reader) Look(ctx context.Context, service *corev1.Service) Lease {
	return r.election(service, func(key string, every time.Duration) Lease {
		r.peek(key, every, time.Time{})
		for _, wanted := range r.wanted() {
			r.fetch(ctx, wanted)
		}
		known, _ := r.peek(key, every, time.Time{})
		return known
	})
}

// election is that of the Service's own Lease, or the one for all Services where its own is not alive. kube-vip never
// deletes a Lease of either kind; and both may be alive, where it runs with different settings.
func (r *Reader) election(service *corev1.Service, of func(key string, every time.Duration) Lease) Lease {
	chosen := r.alive(service, of)
	chosen.Global = r.global
	return chosen
}

func (r *Reader) alive(service *corev1.Service, of func(key string, every time.Duration) Lease) Lease {
	own := of(leaseOf(service), Pause)
	every := Pause
	if own.State == announcer.Held {
		every = slowPause
	}
	global := of(r.global, every)
	switch {
	case own.State == announcer.Held && global.State == announcer.Held && own.Holder != global.Holder:
		own.Rival = global.Name
		own.RivalHolder = global.Holder
		return own
	case own.State == announcer.Held, own.State == "", global.State == announcer.Missing:
		return own
	case global.State == announcer.Held, global.State == "", own.State == announcer.Missing:
		return global
	default:
		return own
	}
}

// leaseOf is where the election of a Service with svc_election is: namespace and name.
func leaseOf(service *corev1.Service) string {
	return Key(service.Namespace, cmp.Or(service.Annotations[LeaseName], leasePrefix+service.Name))
}

// peek returns what is known of a Lease, and whether a read is due now or earlier than before.
func (r *Reader) peek(key string, every time.Duration, evidence time.Time) (Lease, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	known := r.records[key]
	if known == nil {
		known = &record{evidence: now, soonest: now, every: Pause}
		r.records[key] = known
	}
	before, _ := known.next()
	known.usedAt = now
	known.every = every
	known.doubt(evidence)
	next, _ := known.next()
	return known.lease(key), next.Before(before) || !next.After(now)
}

// pause is the time until a Lease in use must be read.
func (r *Reader) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	pause := Pause
	for _, known := range r.records {
		if now.Sub(known.usedAt) < Pause {
			next, _ := known.next()
			pause = min(pause, next.Sub(now))
		}
	}
	return max(pause, 0)
}

// wanted are the Leases to read now. Those that are not used any more are forgotten.
func (r *Reader) wanted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var keys []string
	for key, known := range r.records {
		next, early := known.next()
		switch {
		case now.Sub(known.usedAt) > memory:
			delete(r.records, key)
		case !next.After(now) && now.Sub(known.usedAt) < Pause:
			known.try(now, early)
			keys = append(keys, key)
		}
	}
	return keys
}

func (r *Reader) fetch(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	namespace, name, _ := strings.Cut(key, "/")
	lease, err := r.leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.records[key]
	switch {
	case known == nil:
	case apierrors.IsNotFound(err):
		known.observe(nil, r.node, time.Now())
	case err != nil:
		known.err = err.Error()
	default:
		known.observe(lease, r.node, time.Now())
	}
}

// LookTwice is Look for a person who waits: if one read does not show the state, it reads again after a time.
func (r *Reader) LookTwice(ctx context.Context, service *corev1.Service, after time.Duration) Lease {
	lease := r.Look(ctx, service)
	if lease.State != "" || lease.Error != "" || !loop.Sleep(ctx, after) {
		return lease
	}
	r.mu.Lock()
	for _, known := range r.records {
		known.triedAt = time.Time{}
	}
	r.mu.Unlock()
	return r.Look(ctx, service)
}
