package orphans

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

const (
	// breakerWindow is how long a released orphan counts together with the orphans that follow it.
	breakerWindow = 24 * time.Hour
	// breakerCount blocks, or one in breakerShare if these are more, may become orphans at once.
	breakerCount = 2
	breakerShare = 5
	// breakerListed bounds the blocks in one event, whose text is then shorter than 1024 characters.
	breakerListed = 12
)

// candidate is one orphan as the breaker sees it.
type candidate struct {
	id        string
	held      bool // it was one of too many before
	confirmed bool // a person named it
}

// bound returns how many of the blocks of the cluster may become orphans at once.
func bound(blocks int) int { return max(breakerCount, blocks/breakerShare) }

// hold returns the orphans that must not be deleted until a person confirms it: all, when too many blocks became
// orphans at once, as after a restore of etcd from a time before their Services. What was held before remains held,
// also when the others are no longer orphans. released counts the orphans that were deleted within the window, and
// blocks those that the cluster has.
func hold(orphans []candidate, released, blocks int) []string {
	unconfirmed := slices.DeleteFunc(slices.Clone(orphans), func(o candidate) bool { return o.confirmed })
	tooMany := len(unconfirmed)+released > bound(blocks+released)
	var held []string
	for _, o := range unconfirmed {
		if tooMany || o.held {
			held = append(held, o.id)
		}
	}
	return held
}

// breaker stores the history for hold. After a restart all orphans are new, and so became orphans at once; those that
// were held before are in the report.
type breaker struct {
	// wasHeld are the blocks that the last process held; nil until they were read.
	wasHeld map[string]bool
	// released is when orphans were deleted without a person.
	released []time.Time
	// notice is the last event about blocks that wait for a person.
	notice notice
}

// applyBreaker marks the orphans that wait for a person, among the given number of blocks of the cluster.
func (c *Collector) applyBreaker(ctx context.Context, blocks int) error {
	if !c.config.Collect {
		return nil
	}
	if err := c.loadHeld(ctx); err != nil {
		return err
	}
	c.breaker.forget(c.config.Now())
	released := len(c.breaker.released)
	held := hold(c.candidates(nil), released, blocks)
	if len(held) == 0 {
		c.breaker.notice = notice{}
		return nil
	}
	for _, id := range held {
		c.suspicions[id].held = true
	}
	named, err := c.named(ctx)
	if err != nil {
		return err
	}
	orphans := c.candidates(named)
	for _, o := range orphans {
		c.suspicions[o.id].confirmed = o.confirmed
	}
	c.reportHeld(hold(orphans, released, blocks), blocks)
	return nil
}

// candidates returns the orphans, ordered by ID; named are the blocks that a person named.
func (c *Collector) candidates(named []string) []candidate {
	var orphans []candidate
	for _, id := range slices.Sorted(maps.Keys(c.suspicions)) {
		if s := c.suspicions[id]; s.state == orphan {
			held := s.held || c.breaker.wasHeld[id]
			orphans = append(orphans, candidate{id: id, held: held, confirmed: slices.Contains(named, id)})
		}
	}
	return orphans
}

// loadHeld reads once which orphans the last process held. If three of five that were held have their Services again,
// the other two still wait for a person.
func (c *Collector) loadHeld(ctx context.Context) error {
	if c.breaker.wasHeld != nil {
		return nil
	}
	wasHeld := map[string]bool{}
	stored, err := c.reports.configMaps.Get(ctx, contract.BlockReportName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read ConfigMap %s/%s, which names the IP blocks that wait for a person: %w",
			metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	if err == nil && stored.Data[contract.BlockReportKey] != "" {
		report, err := contract.ParseBlockReport(stored.Data[contract.BlockReportKey])
		if err != nil { // it is written again by this pass
			klog.FromContext(ctx).Error(err, "Failed to parse the last report about IP blocks")
		}
		for _, b := range report.Blocks {
			wasHeld[b.ID] = b.Held
		}
	}
	c.breaker.wasHeld = wasHeld
	return nil
}

// named returns the IDs of the blocks that a person named in the annotation of the Namespace.
func (c *Collector) named(ctx context.Context) ([]string, error) {
	namespace, err := c.config.Kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read annotation %s of Namespace %s: %w", contract.NamespaceCollectOrphans,
			metav1.NamespaceSystem, err)
	}
	return strings.FieldsFunc(namespace.Annotations[contract.NamespaceCollectOrphans],
		func(r rune) bool { return r == ',' || r == ' ' }), nil
}

// deleted records the deletion of an orphan. One that a person confirmed does not count.
func (b *breaker) deleted(s *suspicion, now time.Time) {
	if s.state == orphan && !s.confirmed {
		b.released = append(b.released, now)
	}
}

// forget removes deletions that are older than the window.
func (b *breaker) forget(now time.Time) {
	b.released = slices.DeleteFunc(b.released, func(at time.Time) bool { return now.Sub(at) >= breakerWindow })
}

// reportHeld records one event about all blocks that wait for a person, once each of them was confirmed by a second
// list, and again after repeatAfter.
func (c *Collector) reportHeld(held []string, blocks int) {
	for _, id := range held {
		if c.suspicions[id].looks < confirmed {
			return
		}
	}
	if len(held) == 0 {
		c.breaker.notice = notice{}
		return
	}
	c.notify(&c.breaker.notice, eventStuck, c.heldText(held, blocks))
}

func (c *Collector) heldText(held []string, blocks int) string {
	names := make([]string, len(held))
	for i, id := range held {
		names[i] = id
		if cidr := c.suspicions[id].block.CIDR; cidr.IsValid() {
			names[i] = cidr.String()
		}
	}
	return fmt.Sprintf("%d of %d IP blocks are orphans that are not deleted until a person confirms it, because more "+
		"than %d became orphans within %.0f hours, as after a restore of etcd: %s. If no Service needs them any more, "+
		"delete these blocks with: kubectl annotate namespace %s --overwrite %s=%s", len(held), blocks, bound(blocks),
		breakerWindow.Hours(), text.Some(names, breakerListed), metav1.NamespaceSystem,
		contract.NamespaceCollectOrphans, strings.Join(held[:min(len(held), breakerListed)], ","))
}
