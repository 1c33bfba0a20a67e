// Package none announces nothing. Where an announcer has no use for a method of its interface, it takes that of this
// one.
package none

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Announcer announces nothing.
type Announcer struct{}

// Publish writes nothing.
func (Announcer) Publish(*corev1.Service, netip.Addr, string, []*corev1.Node) map[string]any {
	return map[string]any{}
}

// Withdraw takes back nothing.
func (Announcer) Withdraw(*corev1.Service, string, []*corev1.Node) map[string]any {
	return map[string]any{}
}

// Names reports that no annotation has an address announced.
func (Announcer) Names(*corev1.Service, netip.Addr) bool { return false }

// ReleaseWait is none.
func (Announcer) ReleaseWait() time.Duration { return 0 }

// Silence knows no reason.
func (Announcer) Silence(context.Context, *corev1.Service) (reason, why string) { return "", "" }

// Ignores knows no Service that is ignored.
func (Announcer) Ignores(context.Context, *corev1.Service, []string, []*corev1.Node, time.Time) (
	warning string, again time.Duration,
) {
	return "", 0
}

// Objects needs none.
func (Announcer) Objects() interface {
	Run(ctx context.Context) error
} {
	return nil
}
