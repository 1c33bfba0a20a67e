package reconcile

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// Reasons of the events on the Namespace kube-system about what the controller records there.
const (
	// eventDamaged (Warning): an IPBlock cannot be read; names it and what to do.
	eventDamaged = "RecordUnreadable"
)

// damageRepeats is how often the same damage is reported: events expire after an hour by default.
const damageRepeats = time.Hour

// damageReports remembers when which problem was reported.
type damageReports struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newDamageReports() *damageReports { return &damageReports{last: map[string]time.Time{}} }

// due returns the problems that must be reported now. Those that are over are forgotten.
func (d *damageReports) due(problems []string, now time.Time) (due []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := map[string]time.Time{}
	for _, problem := range problems {
		next[problem] = d.last[problem]
		if at, known := d.last[problem]; !known || now.Sub(at) >= damageRepeats {
			next[problem] = now
			due = append(due, problem)
		}
	}
	d.last = next
	return due
}

// reportDamage reports the ledgers that cannot be read.
func (b *Balancer) reportDamage(ctx context.Context, o plan.Observed) {
	problems := make([]string, 0, len(o.Unreadable))
	for _, unread := range o.Unreadable {
		problems = append(problems, unread.Problem)
	}
	for _, problem := range b.damage.due(problems, o.Now) {
		b.recordInSystem(ctx, corev1.EventTypeWarning, eventDamaged, problem)
	}
}

// recordInSystem records an event on the Namespace kube-system, and in the log.
func (b *Balancer) recordInSystem(ctx context.Context, kind, reason, text string) {
	klog.FromContext(ctx).Info(text, "reason", reason)
	cluster, err := b.cluster(ctx)
	if err != nil {
		return // the log has it
	}
	b.config.Events.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem,
		UID: types.UID(cluster)}, kind, reason, text)
}
