package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// agentPeriod is how often the Leases of the agents are read, with one request for all Nodes.
	agentPeriod            = 30 * time.Second
	agentPeriodUnreachable = 10 * time.Second // the same while some Node is unreachable

	// silentAfter is how long an agent may be silent before its conditions no longer count: six Lease renewals.
	silentAfter = 3 * time.Minute
	// leaselessAfter is the same for an agent that runs, as its conditions show, but lacks the permission to renew its
	// Lease: it writes its conditions at least every five and a half minutes.
	leaselessAfter = 6 * time.Minute
	// unreachableAfter is the same for an agent whose Node is unreachable too. It is longer than one renewal, so that
	// the conditions of an agent that outlives its kubelet are kept.
	unreachableAfter = 45 * time.Second
)

// AgentWatch sets the conditions of silent agents to Unknown: it is the only other writer of these conditions.
type AgentWatch struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	synced cache.InformerSynced
	events record.EventRecorder

	// activities belongs to the goroutine of Run.
	activities map[string]*activity
}

// NewAgentWatch returns a watch on the agents of the Nodes. It starts nothing.
func NewAgentWatch(client kubernetes.Interface, nodes coreinformers.NodeInformer,
	events record.EventRecorder) *AgentWatch {
	return &AgentWatch{
		client: client, nodes: nodes.Lister(), synced: nodes.Informer().HasSynced, events: events,
		activities: map[string]*activity{},
	}
}

// Run watches until ctx ends, and then returns nil. After a start it waits for 3 minutes before it considers any agent
// silent: it does not know when the agents were last active.
func (w *AgentWatch) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), w.synced) {
		return nil
	}
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		period, err := w.sync(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to update conditions of silent agents")
		}
		return period
	})
}

// sync checks all agents once and returns the delay of the next check.
func (w *AgentWatch) sync(ctx context.Context, now time.Time) (period time.Duration, err error) {
	nodes, err := w.nodes.List(labels.Everything())
	if err != nil {
		return agentPeriod, fmt.Errorf("list Nodes: %w", err)
	}
	period = agentPeriod
	watched := nodes[:0:0]
	activities := map[string]*activity{}
	for _, node := range nodes {
		if len(unknown(node, ReasonAgentSilent, now)) == 0 {
			// No agent, or its conditions are Unknown already. Its history is kept for when it writes again.
			if before := w.activities[node.Name]; before != nil {
				activities[node.Name] = before
			}
			continue
		}
		watched = append(watched, node)
		if ready := contract.FindNodeCondition(node, corev1.NodeReady); ready != nil &&
			ready.Status == corev1.ConditionUnknown {
			period = agentPeriodUnreachable
		}
	}
	if err := w.listen(ctx, watched, activities, now); err != nil {
		return period, err
	}
	var problems []error
	for _, node := range watched {
		if reason := doubt(node, *w.activities[node.Name], now); reason != "" {
			problems = append(problems, w.discredit(ctx, node, reason, now))
		}
	}
	return period, errors.Join(problems...)
}

// listen reads the Leases and records since when each agent is silent, in addition to activities. If the Leases cannot
// be read, no agent becomes silent: the time until the next successful read does not count.
func (w *AgentWatch) listen(ctx context.Context, nodes []*corev1.Node, activities map[string]*activity,
	now time.Time) error {
	before := w.activities
	w.activities = activities
	if len(nodes) == 0 {
		return nil
	}
	renewed, err := w.leases(ctx)
	if err != nil {
		return err // start again: renewals in the meantime are unknown
	}
	for _, node := range nodes {
		written, _ := lastWritten(node)
		next := observeSign(before[node.Name], sign{renewed: renewed[node.Name], written: written}, now)
		activities[node.Name] = &next
	}
	return nil
}

// leases returns when each agent last renewed its Lease, by the agent's clock.
func (w *AgentWatch) leases(ctx context.Context) (map[string]time.Time, error) {
	list, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the agents' Leases: %w", err)
	}
	renewed := map[string]time.Time{}
	for i := range list.Items {
		lease := &list.Items[i]
		if node, ok := strings.CutPrefix(lease.Name, contract.AgentLeasePrefix); ok && lease.Spec.RenewTime != nil {
			renewed[node] = lease.Spec.RenewTime.Time
		}
	}
	return renewed, nil
}

// discredit writes the conditions, unless the Node has changed: the agent may have written it.
func (w *AgentWatch) discredit(ctx context.Context, node *corev1.Node, reason string, now time.Time) error {
	conditions := unknown(node, reason, now)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encode the conditions of node %s: %w", node.Name, err)
	}
	_, err = w.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // checked again in the next pass
	case err != nil:
		return fmt.Errorf("patch the conditions of node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Conditions of a Node are Unknown because its agent is silent", "node", node.Name,
		"reason", reason)
	w.events.Event(node, corev1.EventTypeWarning, reason,
		"The conditions of the agent are Unknown. "+conditions[0].Message)
	return nil
}

// sign is an agent's last sign of life, by the agent's clock: never compared with the controller's clock.
type sign struct {
	renewed time.Time // the time in its Lease
	written time.Time // the last heartbeat of its conditions
}

// activity is since when, by the controller's clock, an agent's sign has not changed.
type activity struct {
	sign         sign
	since        time.Time
	renewedSince time.Time // the same for its Lease only
	leaseless    bool      // the agent wrote its conditions while its Lease was not renewed
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

// lastWritten returns the last heartbeat in the Node's conditions that the agent wrote; false without conditions.
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

// unknown returns the conditions that replace those of the agent by Unknown, except those that are already Unknown.
func unknown(node *corev1.Node, reason string, now time.Time) []corev1.NodeCondition {
	messages := map[string]string{
		ReasonAgentSilent: "The agent has not renewed its Lease for 3 minutes: see its pod: " +
			"kubectl -n kube-system get pods -l app.kubernetes.io/name=phoenixnap-agent --field-selector " +
			"spec.nodeName=" + node.Name,
		ReasonNodeUnreachable: "Neither the kubelet nor the agent of this node reports: see in the phoenixNAP portal " +
			"whether its server runs, and at its console why it reaches no API server",
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
