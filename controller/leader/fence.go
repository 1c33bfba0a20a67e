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

// FencedError is why MayChange refuses a change of the account. Nothing was sent.
type FencedError struct {
	// Deadline is the time within which the Lease was to be renewed.
	Deadline time.Duration
	// Holder is who holds the Lease, as far as the process has read that; empty when it has not.
	Holder string
}

// Error implements error.
func (e *FencedError) Error() string {
	if e.Holder != "" {
		return "another replica holds the Lease: " + e.Holder
	}
	return fmt.Sprintf("this process did not renew its Lease within %s; another replica may be the leader", e.Deadline)
}

// Election says how the process is elected.
type Election struct {
	// RenewDeadline is how long after a renewal of the Lease the account may be changed. It must be shorter than
	// the Lease, see k8s.io/client-go/tools/leaderelection: the rest is the time that a change has to arrive.
	RenewDeadline time.Duration
	// Lost is called once, as soon as the process reads that it does not hold a Lease any more that it has held,
	// with the holder, or "" when the Lease has none. It must end the process.
	Lost func(holder string)
}

// Elect has MayChange refuse what the process may not do while another replica may be the leader. Without it,
// as without leader election, MayChange refuses nothing.
func (h *Leadership) Elect(election Election) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.election = &election
}

// MayChange returns a *FencedError unless every Lease that the process acquired was renewed within the deadline
// of the election. The time of a renewal is that before its request was sent, so that no other replica counts
// from an earlier one. It must be called immediately before a change is sent: a process can be stopped for any
// time between a decision and the request, and goes on without knowing. What was sent before cannot be called back.
func (h *Leadership) MayChange() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.election == nil {
		return nil
	}
	deadline := h.election.RenewDeadline
	within, now := len(h.renewed) > 0, clocks()
	for _, at := range h.renewed {
		within = within && now.since(at) < deadline
	}
	if within && !h.lost {
		h.refused = false
		return nil
	}
	err := &FencedError{Deadline: deadline, Holder: h.successor}
	if !h.refused { // once, not for each of many
		h.refused = true
		klog.Background().Error(err, "Refused to change the phoenixNAP account")
	}
	return err
}

// instant is a moment by two clocks: the monotonic one does not count while a machine is suspended
// (clock_gettime(2), CLOCK_MONOTONIC), and the wall clock can be set back.
type instant struct{ monotonic, wall time.Time }

func clocks() instant {
	now := time.Now()
	return instant{monotonic: now, wall: now.Round(0)} // Round(0) removes the monotonic reading
}

// since is by the clock that says more.
func (i instant) since(earlier instant) time.Duration {
	return max(i.monotonic.Sub(earlier.monotonic), i.wall.Sub(earlier.wall))
}

// noteRenewal notes that a server accepted a Lease that names the process as its holder.
func (h *Leadership) noteRenewal(key types.NamespacedName, sent instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed[key] = sent
}

// readLease passes on a request that reads one Lease. If that Lease was acquired by the process and has another
// holder, the process leads no longer: the leader election would find out, but go on trying until its deadline.
// An empty holder counts too, because another replica may have led, and ended, in the meantime.
func (h *Leadership) readLease(base http.RoundTripper, request *http.Request, key types.NamespacedName) (*http.Response, error) {
	response, err := base.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	raw, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // all of it was read, or the connection broke
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s: %w", key, err)
	}
	response.Body = io.NopCloser(bytes.NewReader(raw))
	if lease, err := decodeLease(raw); err == nil {
		h.noteHolder(key, holderOf(lease))
	}
	return response, nil
}

func (h *Leadership) noteHolder(key types.NamespacedName, holder string) {
	h.mu.Lock()
	_, acquired := h.renewed[key]
	if !acquired || holder == h.held[key] || h.election == nil || h.lost || h.releasing {
		h.mu.Unlock()
		return
	}
	h.lost, h.successor = true, holder
	end := h.election.Lost
	h.mu.Unlock()
	end(holder)
}

// leaseKey is of a path that ends with /namespaces/<namespace>/leases/<name>; false for all others.
func leaseKey(path string) (types.NamespacedName, bool) {
	_, rest, found := strings.Cut(path, "/apis/coordination.k8s.io/v1/namespaces/")
	parts := strings.Split(rest, "/")
	if !found || len(parts) != 3 || parts[1] != "leases" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[2]}, true
}
