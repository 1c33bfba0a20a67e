package kubevip

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

// LookTwice is Look for a person who waits: if one read does not show whether the Lease is renewed, it reads again
// after a time, regardless of Pause.
func (r *Reader) LookTwice(ctx context.Context, service *corev1.Service, after time.Duration) Lease {
	lease := r.Look(ctx, service)
	if lease.Standing != "" || lease.Error != "" {
		return lease
	}
	if !loop.Sleep(ctx, after) {
		return lease
	}
	r.mu.Lock()
	for _, known := range r.records {
		known.triedAt = time.Time{}
	}
	r.mu.Unlock()
	return r.Look(ctx, service)
}
