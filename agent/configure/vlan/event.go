package vlan

import (
	"context"

	"k8s.io/klog/v2"
)

// Reasons of the events on the Node about the managed VLAN interface.
const (
	// ReasonConfigured (Normal): the interface was made, or adopted and completed.
	ReasonConfigured = "VLANConfigured"
	// ReasonRepaired (Normal): what had been changed or lost was restored.
	ReasonRepaired = "VLANRepaired"
	// ReasonReleased (Normal): what the agent had made was removed.
	ReasonReleased = "VLANReleased"
	// ReasonNotConfigured (Warning): something prevents the agent from configuring the interface.
	ReasonNotConfigured = "VLANNotConfigured"
	// ReasonDisputed (Warning): another program keeps undoing what the agent does.
	ReasonDisputed = "VLANDisputed"
)

// Event is an event to record on the Node.
type Event struct {
	Warning         bool
	Reason, Message string
}

func (note) silent()   {}
func (forget) silent() {}

// recordActions records what was done.
func (k *Reconciler) recordActions(ctx context.Context, w want, before Observed, done []action) {
	text := texts(done)
	if text == "" {
		return
	}
	reason := ReasonConfigured
	target := w.target(before)
	switch {
	case w.ID == 0:
		reason = ReasonReleased
	case target != nil && target.Ours:
		reason = ReasonRepaired
	}
	k.record(ctx, Event{Reason: reason, Message: text})
}

// report keeps the status, and records a new problem.
func (k *Reconciler) report(ctx context.Context, status Status, reason string) {
	k.mu.Lock()
	isNew := status.Problem != "" && status.Problem != k.status.Problem
	k.status = status
	k.mu.Unlock()
	if isNew {
		k.record(ctx, Event{Warning: true, Reason: reason, Message: status.Problem})
	}
}

func (k *Reconciler) record(ctx context.Context, e Event) {
	klog.FromContext(ctx).Info("The VLAN interface is managed",
		"warning", e.Warning, "reason", e.Reason, "message", e.Message)
	if k.Record != nil {
		k.Record(e)
	}
}
