// Package leader finishes a leader's work before it releases its Lease, so that the next leader finds no change of the
// previous one in progress, and fences a leader that lost its Lease without noticing.
package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// lastRecords is how long objects in the cluster may be changed after the last change of the account.
	lastRecords = 150 * time.Millisecond
	// releaseAttempts bounds how often a Lease is read again after a conflict with another writer.
	releaseAttempts = 3
)

// Leadership wraps the transports to the servers that the process changes. It learns from the requests of the leader
// election which Leases the process holds and under what name: the framework, which runs the election, reports neither.
type Leadership struct {
	cloud   *gate // changes of the account
	objects *gate // changes of anything in the cluster but Leases
	leases  *gate

	mu sync.Mutex
	// held maps each Lease to the identity that the process last wrote. The Lease may have another holder by now.
	held map[types.NamespacedName]string
	// renewed maps each acquired Lease to the time when the process sent the last renewal that a server accepted.
	renewed map[types.NamespacedName]instant

	election  *Election // nil without leader election
	lost      bool      // a Lease was lost; successor is its new holder, if any
	successor string
	refused   bool // the last change was rejected, and logged
	releasing bool // the process releases its Leases, so that it does not lose them
}

// New returns a Leadership that allows changes.
func New() *Leadership {
	return &Leadership{
		cloud: newGate(), objects: newGate(), leases: newGate(),
		held: map[types.NamespacedName]string{}, renewed: map[types.NamespacedName]instant{},
	}
}

// roundTripper makes a function an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// WrapCloud wraps a transport to the phoenixNAP API.
func (l *Leadership) WrapCloud(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !isChange(request.Method) {
			return base.RoundTrip(request)
		}
		return l.cloud.pass(base, request)
	})
}

// WrapKube wraps a transport to the Kubernetes API, including that of the leader election.
func (l *Leadership) WrapKube(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		key, isOne := leaseKey(request.URL.Path)
		switch {
		case request.Method == http.MethodGet && isOne:
			return l.readLease(base, request, key)
		case !isChange(request.Method):
			return base.RoundTrip(request)
		case !isLease(request.URL.Path):
			return l.objects.pass(base, request)
		}
		return l.writeLease(base, request)
	})
}

// writeLease forwards a request that writes a Lease. One that cannot be parsed does not count as a renewal. After
// Release began, a renewal is rejected once its context has ended.
func (l *Leadership) writeLease(base http.RoundTripper, request *http.Request) (*http.Response, error) {
	key, ours := l.remember(request)
	sent := clocks()
	response, err := l.leases.pass(base, request)
	if errors.As(err, new(closedError)) {
		// The process ends in a moment. Until then the election would call the rejection a failure, and try again.
		<-request.Context().Done()
	}
	if ours && err == nil && response.StatusCode < http.StatusMultipleChoices {
		l.noteRenewal(key, sent)
	}
	return response, err
}

func isChange(method string) bool { return method != http.MethodGet && method != http.MethodHead }

func isLease(path string) bool {
	return strings.Contains(path, "/apis/coordination.k8s.io/") && strings.Contains(path, "/leases")
}

// remember records the holder of a Lease that is about to be written; false when it has no holder, or cannot be parsed.
// It does not matter whether the write succeeds: a Lease is released only if it still has that holder.
func (l *Leadership) remember(request *http.Request) (types.NamespacedName, bool) {
	lease, err := leaseIn(request)
	if err != nil {
		klog.FromContext(request.Context()).V(2).Info("Failed to parse a Lease in a request, so it will not be "+
			"released early",
			"path", request.URL.Path, "err", err)
		return types.NamespacedName{}, false
	}
	key := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
	holder := holderOf(lease)
	if holder == "" {
		return key, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[key] = holder
	return key, true
}

func leaseIn(request *http.Request) (*coordinationv1.Lease, error) {
	if request.GetBody == nil {
		return nil, errors.New("the body can be read only once")
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return decodeLease(raw)
}

func decodeLease(raw []byte) (*coordinationv1.Lease, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	lease, ok := decoded.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", decoded)
	}
	return lease, nil
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

// Quiesce rejects all further changes, except of Leases, and waits until the changes in progress are answered. Changes
// of the account are stopped first: for a moment, the results of the last ones can still be recorded in the cluster,
// which the next leader would otherwise have to find out. The error contains how many had no answer when ctx ended.
func (l *Leadership) Quiesce(ctx context.Context) error {
	l.cloud.close()
	err := l.cloud.drain(ctx)
	loop.Sleep(ctx, lastRecords)
	l.objects.close()
	return errors.Join(err, l.objects.drain(ctx))
}

// Release ends the election's renewals and releases every Lease that the process still holds, so that another replica
// need not wait until it expires. leases must not go through WrapKube. The process must end afterwards.
func (l *Leadership) Release(ctx context.Context, leases coordinationclient.LeasesGetter) error {
	l.leases.close()
	l.mu.Lock()
	l.releasing = true
	l.mu.Unlock()
	if err := l.leases.drain(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	held := maps.Clone(l.held)
	l.mu.Unlock()
	var problems []error
	for key, identity := range held {
		if err := releaseOne(ctx, leases.Leases(key.Namespace), key.Name, identity); err != nil {
			problems = append(problems, fmt.Errorf("release the Lease %s: %w", key, err))
		}
	}
	return errors.Join(problems...)
}

// releaseOne removes the holder of the Lease by compare-and-swap if identity holds it.
func releaseOne(ctx context.Context, leases coordinationclient.LeaseInterface, name, identity string) error {
	for attempt := 1; ; attempt++ {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if holderOf(lease) != identity {
			return nil
		}
		_, err = leases.Update(ctx, released(lease), metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) || attempt == releaseAttempts {
			return err
		}
	}
}

// released returns the Lease without a holder, valid for a second, as client-go's leader election releases it.
func released(lease *coordinationv1.Lease) *coordinationv1.Lease {
	free := lease.DeepCopy()
	free.Spec.HolderIdentity = ptr.To("")
	free.Spec.LeaseDurationSeconds = ptr.To[int32](1)
	return free
}

// closedError is the error of a request that a closed gate rejects.
type closedError struct{}

func (closedError) Error() string { return "the process is shutting down and makes no more changes" }

// Is reports whether target is pnap.ErrUnsent: nothing left the process.
func (closedError) Is(target error) bool { return target == pnap.ErrUnsent }

// gate counts the requests that pass through it. A closed gate rejects all requests.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	idle   chan struct{} // closed when the gate is closed and nothing is inside
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.idle)
	}
}

// close makes the gate reject all further requests.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.inside == 0 {
		close(g.idle)
	}
}

// drain waits until nothing is inside a closed gate.
func (g *gate) drain(ctx context.Context) error {
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return fmt.Errorf("%d changes have no answer yet: %w", g.inside, ctx.Err())
	}
}

// pass sends the request if the gate is open. It ends with the head of the answer: by then the change is made.
func (g *gate) pass(base http.RoundTripper, request *http.Request) (*http.Response, error) {
	if !g.enter() {
		if request.Body != nil {
			_ = request.Body.Close() // http.RoundTripper must close it; the error has no recipient
		}
		return nil, closedError{}
	}
	defer g.leave()
	return base.RoundTrip(request)
}
