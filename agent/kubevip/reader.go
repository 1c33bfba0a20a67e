package kubevip

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// Pause is the shortest time between two looks at one Lease.
	Pause = 30 * time.Second
	// memory is how long a Lease is remembered that nobody asks for.
	memory = 10 * time.Minute
	// timeout bounds one request.
	timeout = 5 * time.Second
)

// Reader reads Leases by name, each at most once in Pause. It never lists or watches them: a thousand agents would each
// receive every renewal in the cluster. It is safe for concurrent use.
type Reader struct {
	leases    coordinationclient.LeasesGetter
	namespace string
	// onRead is called after Leases were read.
	onRead func()
	wake   chan struct{}

	mu      sync.Mutex
	records map[string]*record
}

// NewReader returns a reader; it starts nothing. namespace is where kube-vip runs: its Lease for all Services is there.
func NewReader(leases coordinationclient.LeasesGetter, namespace string) *Reader {
	return &Reader{leases: leases, namespace: namespace, onRead: func() {}, wake: make(chan struct{}, 1), records: map[string]*record{}}
}

// OnRead sets what is called after Leases were read. It is to be called before Run.
func (r *Reader) OnRead(read func()) { r.onRead = read }

// Run reads what Of was asked for, until ctx ends. An API server that does not answer holds nobody up but Run.
func (r *Reader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		for _, key := range r.wanted() {
			r.fetch(ctx, key)
		}
		if ctx.Err() == nil {
			r.onRead()
		}
	}
}

// Of returns what is known of the election for a Service, and has Run look again when that is old.
func (r *Reader) Of(service *corev1.Service) Lease { return r.election(service, r.peek) }

// Look is Of for those who have no Run: it reads what is old before it returns.
func (r *Reader) Look(ctx context.Context, service *corev1.Service) Lease {
	return r.election(service, func(key string) Lease {
		r.peek(key)
		for _, wanted := range r.wanted() {
			r.fetch(ctx, wanted)
		}
		return r.peek(key)
	})
}

// election is that of the Service's own Lease, or the one for all Services where its own is not alive. Both kinds may have
// left Leases behind, for kube-vip never deletes one.
func (r *Reader) election(service *corev1.Service, of func(key string) Lease) Lease {
	own := of(leaseOf(service))
	if own.Standing == Held || own.Standing == "" {
		return own
	}
	global := of(r.namespace + "/" + GlobalLease)
	if global.Standing == Missing {
		return own
	}
	if global.Standing == Held || global.Standing == "" || own.Standing == Missing {
		return global
	}
	return own
}

// leaseOf is where the election of a Service with svc_election is: namespace and name.
func leaseOf(service *corev1.Service) string {
	given := service.Annotations[LeaseName]
	switch {
	case strings.Contains(given, "/"):
		return given
	case given != "":
		return service.Namespace + "/" + given
	default:
		return service.Namespace + "/" + leasePrefix + service.Name
	}
}

// peek returns what is known of a Lease and asks for a look when that is old.
func (r *Reader) peek(key string) Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	known := r.records[key]
	if known == nil {
		known = &record{}
		r.records[key] = known
	}
	known.usedAt = now
	if known.old(now) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return known.lease(key)
}

// wanted are the Leases that are to be read now. Those that nobody asks for any more are forgotten.
func (r *Reader) wanted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var keys []string
	for key, known := range r.records {
		switch {
		case now.Sub(known.usedAt) > memory:
			delete(r.records, key)
		case known.old(now) && now.Sub(known.usedAt) < Pause:
			known.triedAt = now
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
		known.observe(nil, time.Now())
	case err != nil:
		known.err = err.Error()
	default:
		known.observe(lease, time.Now())
	}
}
