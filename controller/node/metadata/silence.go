package metadata

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// silentAfter is how long an agent may be silent before its conditions no longer count. It renews its Lease every
	// 30 seconds.
	silentAfter = 3 * time.Minute
	// leaselessAfter is the same for an agent that runs, as its conditions show, but lacks the permission to renew its
	// Lease: it writes its conditions at least every five and a half minutes.
	leaselessAfter = 6 * time.Minute
	// unreachableAfter is the same for an agent whose Node is unreachable too. It is longer than one renewal, so that
	// the conditions of an agent that outlives its kubelet are kept.
	unreachableAfter = 45 * time.Second
)

// sign is an agent's last sign of life. Its times are by the agent's clock: they are compared with each other, never
// with the controller's clock.
type sign struct {
	// renewed is the time in its Lease.
	renewed time.Time
	// written is the last heartbeat of its conditions.
	written time.Time
}

// activity is since when, by the controller's clock, an agent's sign has not changed.
type activity struct {
	sign  sign
	since time.Time
	// renewedSince is the same for its Lease only.
	renewedSince time.Time
	// leaseless reports that the agent wrote its conditions while its Lease was not renewed.
	leaseless bool
}

// observeSign returns the activity after a check at now. A missing Lease does not count.
func observeSign(before *activity, seen sign, now time.Time) activity {
	switch {
	case before == nil, !before.sign.renewed.Equal(seen.renewed):
		return activity{sign: seen, since: now, renewedSince: now}
	case before.sign.written.Equal(seen.written):
		return *before
	default:
		return activity{
			sign: seen, since: now, renewedSince: before.renewedSince,
			leaseless: before.leaseless || now.Sub(before.renewedSince) >= silentAfter,
		}
	}
}

// agentConditions are the conditions that agents write.
func agentConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{contract.ConditionVLANReady, contract.ConditionAnnouncementHealthy}
}

// lastWritten returns the last heartbeat that the agent itself wrote to the Node's conditions; false when there is
// none. Conditions that the controller wrote do not count.
func lastWritten(node *corev1.Node) (written time.Time, ok bool) {
	for _, kind := range agentConditions() {
		condition := contract.FindNodeCondition(node, kind)
		if condition == nil {
			continue
		}
		ok = true
		if !ours(condition) && condition.LastHeartbeatTime.After(written) {
			written = condition.LastHeartbeatTime.Time
		}
	}
	return written, ok
}

func ours(condition *corev1.NodeCondition) bool {
	return condition.Reason == ReasonAgentSilent || condition.Reason == ReasonNodeUnreachable
}

// doubt returns the reason why an agent's conditions no longer count; empty while they do.
func doubt(node *corev1.Node, last activity, now time.Time) string {
	silence := now.Sub(last.since)
	most := silentAfter
	if last.leaseless {
		most = leaselessAfter
	}
	ready := contract.FindNodeCondition(node, corev1.NodeReady)
	switch {
	case ready != nil && ready.Status == corev1.ConditionUnknown && silence >= unreachableAfter:
		return ReasonNodeUnreachable
	case silence >= most:
		return ReasonAgentSilent
	default:
		return ""
	}
}

// unknown returns the conditions that replace those of the agent by Unknown. A condition that is already Unknown is
// kept.
func unknown(node *corev1.Node, reason string, now time.Time) []corev1.NodeCondition {
	messages := map[string]string{
		ReasonAgentSilent:     "The agent has not renewed its Lease for 3 minutes: see its pod on this node",
		ReasonNodeUnreachable: "Neither the kubelet nor the agent of this node reports",
	}
	var written []corev1.NodeCondition
	for _, kind := range agentConditions() {
		condition := contract.FindNodeCondition(node, kind)
		if condition == nil || condition.Status == corev1.ConditionUnknown {
			continue
		}
		written = append(written, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionUnknown, Reason: reason, Message: messages[reason],
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		})
	}
	return written
}
