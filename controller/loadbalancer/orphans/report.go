package orphans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Reasons of the events on the Namespace kube-system, and eventOrphaned also on IPBlocks.
const (
	// eventOrphaned (Warning): a block is paid for but not used.
	eventOrphaned = "OrphanedIPBlock"
	// eventCollected (Normal): an orphan was released to phoenixNAP.
	eventCollected = "OrphanCollected"
	// eventStuck (Warning): an orphan cannot be released until a person has acted.
	eventStuck = "OrphanNotCollected"
	// eventUnreadable (Warning): the account cannot be read; repeats the words of the API and says what to do.
	eventUnreadable = contract.AccountUnreadable
	// eventDryRun (Normal): what would have been changed.
	eventDryRun = "DryRun"
)

// repeatAfter is how often an orphan is reported again: the API server deletes events after an hour by default.
const repeatAfter = time.Hour

// notice is the last event of a kind: its text and when it was recorded.
type notice struct {
	text string
	at   time.Time
}

// reportUnreadable records why the account cannot be read.
func (c *Collector) reportUnreadable(ctx context.Context, err error) {
	c.config.Account.Reviewed(time.Time{})
	unsent := pnap.IsRepeated(err) || pnap.IsPaused(err) && errors.Is(err, pnap.ErrUnsent)
	if ctx.Err() != nil || unsent && c.unreadable.text != "" { // the failure before says more
		return
	}
	c.notify(&c.unreadable, eventUnreadable, "The phoenixNAP account cannot be read: "+pnap.Explain(err))
}

// notify records a Warning unless the last one says the same and is not older than repeatAfter.
func (c *Collector) notify(last *notice, reason, text string) {
	if now := c.config.Now(); text != last.text || now.Sub(last.at) >= repeatAfter {
		*last = notice{text: text, at: now}
		c.record(corev1.EventTypeWarning, reason, text)
	}
}

// reportDue records events about blocks that seem to be unused.
func (c *Collector) reportDue(f facts) {
	now := c.config.Now()
	for _, id := range slices.Sorted(maps.Keys(c.suspicions)) {
		if s := c.suspicions[id]; s.looks >= confirmed && now.Sub(s.reported) >= repeatAfter {
			s.reported = now
			c.report(s, f)
		}
	}
}

// report records an event about a block; the text is constant, so that repetitions are counted and not listed.
func (c *Collector) report(s *suspicion, f facts) {
	b := s.block
	age := "first seen " + s.since.UTC().Format(time.RFC3339)
	if !b.CreatedOn.IsZero() {
		age = "created " + b.CreatedOn.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("IP block %s (%s, %s): %s. %s", b.ID, b.CIDR, age, problemOf(s.state, b), c.remedy(s))
	record, found := f.of(b.ID)
	if !found {
		record, found = f.sharedOf(b.ID)
	}
	if !found {
		c.record(corev1.EventTypeWarning, eventOrphaned, text)
		return
	}
	c.config.Events.Event(allocation.Reference(record.Name, types.UID(record.UID)), corev1.EventTypeWarning,
		eventOrphaned, text)
}

// problemOf returns what is wrong with a block.
func problemOf(s blockState, b network.Block) string {
	service, _ := serviceOf(b)
	switch s {
	case orphan:
		return fmt.Sprintf("it was bought for Service %s (<namespace>_<name>), which does not exist", service)
	case leftover:
		return "phoenixnap/k8s-cloud-provider-bmc v1 marked it for deletion"
	case empty:
		return "it was bought to be shared, and none of its addresses is held"
	case unclear:
		if _, untouchable := ipblock.Untouchable(b); untouchable {
			return fmt.Sprintf("it was bought for this cluster, which does not use it, and is %s", b.Status)
		}
		return "it was bought for this cluster, but its tags, or they and the recorded purchases, do not say what for"
	case inUse, retained:
	}
	return string(s)
}

// remedy returns what happens to the block, or what to do.
func (c *Collector) remedy(s *suspicion) string {
	switch {
	case s.confirmed, s.state == leftover:
		return "It is going to be deleted"
	case s.held:
		return "It is paid for until it is deleted: create the Service again, or give its IPBlock the annotation " +
			contract.AllowRelease + "=true and delete that"
	case s.state == orphan && c.config.Collect:
		return "It is going to be deleted"
	case s.state == orphan:
		return "It is paid for until it is deleted: delete its IPBlock, or the block in the phoenixNAP portal, " +
			"create the Service again, or set --collect-orphans"
	case s.state == empty:
		return "It is paid for until it is deleted: the controller does that by itself, for a block of the nodes " +
			"with --manage-membership; else delete it in the phoenixNAP portal"
	case s.block.Status == network.Subnetted:
		return "It is paid for until it is deleted, and its parts with it: do that in the phoenixNAP portal, or " +
			"remove its tags if something else uses them"
	default:
		return "It is paid for until it is deleted: do that in the phoenixNAP portal if nothing uses it"
	}
}

func (c *Collector) record(eventType, reason, text string) {
	c.config.Events.Event(c.namespace, eventType, reason, text)
}

// Metrics are the metrics of unused blocks.
type Metrics struct {
	blocks    *metrics.GaugeVec
	collected *metrics.Counter
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		blocks: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_orphan_ip_blocks", StabilityLevel: metrics.ALPHA,
			Help: "Unused IP blocks of the cluster, by standing: orphan (its Service does not exist), " +
				"leftover (marked for deletion by phoenixnap/k8s-cloud-provider-bmc v1), empty (shared, and no " +
				"address is held), unclear (its tags do not say what it is for); " +
				"beside them retained (kept without a Service because a user wanted it).",
		}, []string{"standing"}),
		collected: metrics.NewCounter(&metrics.CounterOpts{
			Name: "phoenixnap_orphan_ip_blocks_collected_total", StabilityLevel: metrics.ALPHA,
			Help: "Orphaned IP blocks that were released to phoenixNAP.",
		}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable { return []metrics.Registerable{m.blocks, m.collected} }

func (m *Metrics) set(counts map[blockState]int) {
	for _, s := range []blockState{orphan, leftover, empty, unclear, retained} {
		m.blocks.WithLabelValues(string(s)).Set(float64(counts[s]))
	}
}
