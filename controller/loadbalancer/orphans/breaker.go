package orphans

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
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
	confirmed bool // a person has deleted its IPBlock
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
// were held before show it in their IPBlocks.
type breaker struct {
	// released is when orphans were deleted without a person.
	released []time.Time
	// notice is the last event about blocks that wait for a person.
	notice notice
}

// applyBreaker marks the orphans that a person has given up by deleting their IPBlocks, and those that wait for that,
// among the given number of blocks of the cluster. It returns the IDs of the latter.
func (c *Collector) applyBreaker(f facts, blocks int) []string {
	orphans := c.candidates(f)
	for _, o := range orphans {
		c.suspicions[o.id].confirmed = o.confirmed
	}
	if !c.config.Collect {
		return nil
	}
	c.breaker.forget(c.config.Now())
	held := hold(orphans, len(c.breaker.released), blocks)
	for _, id := range held {
		c.suspicions[id].held = true
	}
	return held
}

// candidates returns the orphans, ordered by ID. If three of five that were held have their Services again, the other
// two still wait for a person.
func (c *Collector) candidates(f facts) []candidate {
	var orphans []candidate
	for _, id := range slices.Sorted(maps.Keys(c.suspicions)) {
		s := c.suspicions[id]
		if s.state != orphan {
			continue
		}
		record, _ := f.of(id)
		held := s.held || record.Report.Orphaned.Reason == v1beta1.OrphanedAwaitingConfirmation
		orphans = append(orphans, candidate{id: id, held: held, confirmed: record.Deleted})
	}
	return orphans
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
		"than %d became orphans within %.0f hours, as after a restore of etcd: %s. kubectl get ipb shows them with the "+
		"reason %s. If no Service needs a block any more, delete its IPBlock: kubectl annotate ipb <name> %s=true && "+
		"kubectl delete ipb <name>", len(held), blocks, bound(blocks), breakerWindow.Hours(),
		text.Some(names, breakerListed), v1beta1.OrphanedAwaitingConfirmation, contract.AllowRelease)
}
