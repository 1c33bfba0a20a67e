package leader

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// leaseTolerance is how long after its end the process may keep a Lease that it does not renew.
const leaseTolerance = 20 * time.Second

// FencedError is why MayChange rejects a change of the account. Nothing was sent.
type FencedError struct {
	Deadline time.Duration // the time within which the Lease had to be renewed
	Holder   string        // the holder of the Lease that the process read; empty when it has not read one
}

// Error implements error.
func (e *FencedError) Error() string {
	if e.Holder != "" {
		return "another replica holds the Lease: " + e.Holder
	}
	return fmt.Sprintf("this process did not renew its Lease within %s; another replica may be the leader", e.Deadline)
}

// Election configures the leader election.
type Election struct {
	// RenewDeadline is how long after a renewal of the Lease the account may be changed. It must be shorter than
	// the Lease, see k8s.io/client-go/tools/leaderelection: the rest is the time that a change has to arrive.
	RenewDeadline time.Duration
	// Lost is called once, as soon as the process reads that it lost a Lease that it held, with the new holder, or ""
	// when the Lease has none. It must end the process.
	Lost func(holder string)
}

// Elect makes MayChange reject changes while another replica may be the leader; without it, MayChange allows them all.
func (l *Leadership) Elect(election Election) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.election = &election
}

// MayChange returns a *FencedError unless every Lease that the process acquired was renewed within the deadline
// of the election. A renewal counts from the time before its request was sent, so that no other replica counts from an
// earlier time. MayChange must be called immediately before a change is sent: a process can be suspended for any time
// between a decision and the request, and continues without noticing. A change that was sent cannot be recalled.
func (l *Leadership) MayChange() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.election == nil {
		return nil
	}
	deadline := l.election.RenewDeadline
	within := len(l.renewed) > 0
	now := clocks()
	for _, at := range l.renewed {
		within = within && now.since(at) < deadline
	}
	if within && !l.lost {
		l.refused = false
		return nil
	}
	err := &FencedError{Deadline: deadline, Holder: l.successor}
	if !l.refused { // log the first of many
		l.refused = true
		klog.Background().Error(err, "Refused to change the phoenixNAP account")
	}
	return err
}

// instant is a point in time by two clocks: the monotonic clock stops while a machine is suspended (clock_gettime(2),
// CLOCK_MONOTONIC), and the wall clock can be set back.
type instant struct{ monotonic, wall time.Time }

func clocks() instant {
	now := time.Now()
	return instant{monotonic: now, wall: now.Round(0)} // Round(0) removes the monotonic reading
}

// since returns the longer of the durations by the two clocks.
func (i instant) since(earlier instant) time.Duration {
	return max(i.monotonic.Sub(earlier.monotonic), i.wall.Sub(earlier.wall))
}

// noteRenewal records that a server accepted a Lease whose holder is the process.
func (l *Leadership) noteRenewal(key types.NamespacedName, sent instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed[key] = sent
}

// Renewed is when the process sent the last renewal of a Lease that a server accepted; zero when none was.
func (l *Leadership) Renewed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var last time.Time
	for _, at := range l.renewed {
		if at.monotonic.After(last) {
			last = at.monotonic
		}
	}
	return last
}

// CheckRenewal fails when the process is the leader but does not renew its Lease, as when the election is stuck: the
// process should have ended then. duration is how long a Lease is valid.
func (l *Leadership) CheckRenewal(duration time.Duration) error {
	renewed := l.Renewed()
	if ago := time.Since(renewed); !renewed.IsZero() && ago > duration+leaseTolerance {
		return fmt.Errorf("the Lease was last renewed %s ago", ago.Round(time.Second))
	}
	return nil
}

// readLease forwards a request that reads one Lease. If the process acquired that Lease and it has another holder, the
// process is no longer the leader: the leader election would detect this, but retry until its deadline. An empty holder
// counts too, because another replica may have been the leader, and ended, in the meantime.
func (l *Leadership) readLease(base http.RoundTripper, request *http.Request, key types.NamespacedName) (*http.Response,
	error) {
	response, err := base.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	raw, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // the body was read completely, or the connection broke
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s: %w", key, err)
	}
	response.Body = io.NopCloser(bytes.NewReader(raw))
	if lease, err := decodeLease(raw); err == nil {
		l.noteHolder(key, holderOf(lease))
	}
	return response, nil
}

func (l *Leadership) noteHolder(key types.NamespacedName, holder string) {
	l.mu.Lock()
	_, acquired := l.renewed[key]
	if !acquired || holder == l.held[key] || l.election == nil || l.lost || l.releasing {
		l.mu.Unlock()
		return
	}
	l.lost = true
	l.successor = holder
	end := l.election.Lost
	l.mu.Unlock()
	end(holder)
}

// leaseKey returns the Lease of a path that ends with /namespaces/<namespace>/leases/<name>; false for other paths.
func leaseKey(path string) (types.NamespacedName, bool) {
	_, rest, found := strings.Cut(path, "/apis/coordination.k8s.io/v1/namespaces/")
	parts := strings.Split(rest, "/")
	if !found || len(parts) != 3 || parts[1] != "leases" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[2]}, true
}
