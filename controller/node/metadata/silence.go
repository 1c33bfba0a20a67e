package metadata

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// silentAfter is how long an agent may be silent before its conditions count no longer. It renews its
	// Lease every 30 seconds.
	silentAfter = 3 * time.Minute
	// leaselessAfter is the same for an agent that lives, as its conditions show, and yet does not renew its Lease, because
	// it may not: it writes its conditions every five and a half minutes at the latest.
	leaselessAfter = 6 * time.Minute
	// unreachableAfter is the same for an agent whose Node is not heard of either. It is longer than one
	// renewal, so that an agent that outlives its kubelet is not contradicted.
	unreachableAfter = 45 * time.Second
)

// sign is what an agent left behind by which it is known to live. Times are those of the agent's clock:
// they are compared with each other, never with ours.
type sign struct {
	// renewed is the time in its Lease.
	renewed time.Time
	// written is the last heartbeat of its conditions.
	written time.Time
}

// hearing is since when, by our own clock, an agent's sign is what it is.
type hearing struct {
	sign  sign
	since time.Time
	// renewedSince is the same of its Lease alone.
	renewedSince time.Time
	// leaseless tells that the agent was heard of otherwise when its Lease had called it silent.
	leaseless bool
}

// hear returns the hearing after a look at now. A Lease that could not be found says nothing.
func hear(before *hearing, seen sign, now time.Time) hearing {
	switch {
	case before == nil, !before.sign.renewed.Equal(seen.renewed):
		return hearing{sign: seen, since: now, renewedSince: now}
	case before.sign.written.Equal(seen.written):
		return *before
	default:
		return hearing{
			sign: seen, since: now, renewedSince: before.renewedSince,
			leaseless: before.leaseless || now.Sub(before.renewedSince) >= silentAfter,
		}
	}
}

// agentConditions are the conditions that agents write.
func agentConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{contract.ConditionVLANReady, contract.ConditionAnnouncementHealthy}
}

// lastWritten is the last heartbeat that the agent itself gave the Node's conditions; false when it has
// none. What we wrote in its place is no sign of it.
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

// doubt names the reason for which an agent's conditions count no longer; empty while they do.
func doubt(node *corev1.Node, heard hearing, now time.Time) string {
	silence, most := now.Sub(heard.since), silentAfter
	if heard.leaseless {
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

// unknown returns the conditions to write so that none that the agent wrote is believed any more. One that
// is Unknown already stays as it is.
func unknown(node *corev1.Node, reason string, now time.Time) []corev1.NodeCondition {
	messages := map[string]string{
		ReasonAgentSilent:     "The agent has not renewed its Lease for 3 minutes: see its pod on this node",
		ReasonNodeUnreachable: "Neither the kubelet nor the agent of this node is heard of",
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
