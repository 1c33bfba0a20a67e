package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Release takes the Service one step nearer to having nothing: at most one change of the account. It
// returns nil once nothing of it is left, in the account, in the ledgers and on the Service, so that the
// finalizer may go. Its errors are those of Ensure.
//
// It reads tags, ledgers and the recorded purchase, and of what the user wrote only whether the block is
// retained: nothing that can be written into a Service keeps it from being deleted.
func (b *Balancer) Release(ctx context.Context, service *corev1.Service) error {
	return b.pacing(service, b.release(ctx, service))
}

func (b *Balancer) release(ctx context.Context, service *corev1.Service) error {
	live, err := b.byName(ctx, service)
	if err != nil {
		return err
	}
	known := service
	switch {
	case live == nil:
	case live.UID == service.UID && contract.WantsAddress(live):
		return b.retry(service, reasonOutdated)
	case live.UID == service.UID:
		if live, err = b.withdraw(ctx, live); err != nil {
			return err
		}
		known = live
	case contract.WantsAddress(live):
		// The Service was deleted and created again; the new one takes over what it had, address and all.
		return nil
	default:
		live = nil
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.giveBack(ctx, known, live)
}

// withdraw takes our address off a Service that lives on as another type. A Service that is going keeps
// it: kube-vip stops announcing only when the object is gone, so there is nothing to wait for.
func (b *Balancer) withdraw(ctx context.Context, live *corev1.Service) (*corev1.Service, error) {
	if live.DeletionTimestamp != nil {
		return live, nil
	}
	s, err := b.beginObservation(ctx, live)
	if err != nil {
		return nil, err
	}
	return b.patchService(ctx, live, withdrawal(live, commonInterface(s.nodes, s.networkID)))
}

// giveBack observes, decides and applies. live is the Service to write on; nil when it is gone.
func (b *Balancer) giveBack(ctx context.Context, known, live *corev1.Service) error {
	start := b.config.Now()
	s, err := b.observeToRelease(ctx, known, start)
	if err != nil {
		b.note(ctx, live, reasonLookupFailed, words(reasonLookupFailed))
		return fmt.Errorf("look for the IP block of Service %s/%s: %w", known.Namespace, known.Name, err)
	}
	f := b.planRelease(s, live)
	if !f.waits() && !s.fresh(start) {
		if s, err = b.observe(ctx, s, depth{after: start, live: true}); err != nil {
			b.note(ctx, live, reasonLookupFailed, words(reasonLookupFailed))
			return fmt.Errorf("look for the IP block of Service %s/%s: %w", known.Namespace, known.Name, err)
		}
		f = b.planRelease(s, live)
	}
	acted, err := b.applyRelease(ctx, s, f)
	if err != nil {
		if !pnap.IsDryRun(err) {
			b.note(ctx, live, reasonReleaseFailed, words(reasonReleaseFailed))
		}
		return err
	}
	if acted == plan.DeletionUnverified {
		// Deleting is done at once: look whether that was the last of it.
		if s, err = b.observe(ctx, s, depth{after: start, live: true}); err != nil {
			return fmt.Errorf("verify the deletion of the IP block of Service %s/%s: %w", known.Namespace, known.Name, err)
		}
		f, acted = b.planRelease(s, live), ""
		if err := b.dropLedgers(ctx, f.drop); err != nil {
			return err
		}
	}
	return b.conclude(ctx, known, live, f, acted)
}

func (b *Balancer) observeToRelease(ctx context.Context, known *corev1.Service, now time.Time) (observed, error) {
	s, err := b.beginObservation(ctx, known)
	if err != nil {
		return observed{}, err
	}
	s.purchase = purchaseToRelease(ctx, known)
	s.desired.blockID = "" // what was asked for matters no more, only what is held
	after := b.pace.freshness(known.UID, s.now)
	if after.IsZero() {
		after = now
	}
	return b.observe(ctx, s, depth{after: after, live: true})
}

// releasePlan is what is left to do until a Service has nothing any more.
type releasePlan struct {
	// answering tells that an agent still answers for the address, which it is given a moment to stop.
	answering bool
	// leavingSince is since when the Service is known to leave, for the next decision; the zero Time when nothing is to be
	// remembered.
	leavingSince time.Time
	// save are the ledgers in which the Service gives up its addresses.
	save []plan.Ledger
	// retag is the block whose tags are to be set, if any, and tags are all that it is to carry.
	retag plan.Block
	tags  map[string]string
	// steps give back blocks, in the order in which they are to be tried.
	steps []plan.Step
	// drop are the ledgers of blocks that are gone or given up.
	drop []plan.Ledger
}

// waits tells whether time alone goes on.
func (f releasePlan) waits() bool {
	return f.answering || (len(f.save) == 0 && f.tags == nil && len(f.drop) == 0 && len(f.steps) > 0 && f.next().Action == plan.Wait)
}

// next is the step that comes first: one that can be taken, else one that waits, else a refusal. Done
// when nothing is left.
func (f releasePlan) next() plan.Step {
	for _, kinds := range [][]plan.Action{{plan.Delete, plan.Unassign}, {plan.Wait}, {plan.Refuse}} {
		for _, step := range f.steps {
			if slices.Contains(kinds, step.Action) {
				return step
			}
		}
	}
	return plan.Step{Action: plan.Done, Reason: plan.NoBlock}
}

// planRelease decides what is left to do and records what the decision notes of the history.
func (b *Balancer) planRelease(s observed, live *corev1.Service) releasePlan {
	f := planOf(s, live)
	if !f.leavingSince.IsZero() {
		b.pace.leaves(s.service.UID, f.leavingSince)
	}
	return f
}

// planOf decides what is left to do. live is the Service as it is now; nil when it is gone, and with
// it what its author wanted.
func planOf(s observed, live *corev1.Service) releasePlan {
	if refusal, unproven := plan.Unproven(s.view(nil)); unproven && !s.ours && s.hadSomething() {
		refusal.Detail += "; nothing of this Service is given back until then"
		return releasePlan{steps: []plan.Step{refusal}}
	}
	var f releasePlan
	f.answering, f.leavingSince = s.answering()
	for _, l := range s.ledgers {
		freed := l.Free(s.holder, s.now)
		switch {
		case len(freed.Held) != len(l.Held):
			f.save = append(f.save, s.closeIfLast(freed))
		case l.Closed && l.Empty() && knows(l, s.holder):
			f.addClosed(s, l)
		}
	}
	if retain, told := retaining(live); told {
		f.retag, f.tags, _ = plan.Retag(s.owner, plan.Wish{Published: lastAddress(live)}, s.view(s.purchase), retain)
	}
	f.steps = append(f.steps, plan.Release(s.owner, s.view(s.purchase))...)
	return f
}

// hadSomething reports whether there may be anything to give back: the controller wrote on the Service, which it does before
// it buys, or a ledger names it. A Service that never had anything goes in any account.
func (s observed) hadSomething() bool {
	return s.written() || len(s.service.Status.LoadBalancer.Ingress) > 0 ||
		slices.ContainsFunc(s.ledgers, func(l plan.Ledger) bool { return knows(l, s.holder) })
}

// closeIfLast marks the block of a ledger as being given back when nobody has an address of it any more
// and nobody waits for one. A brought block stays as it is, unless the controller assigned it.
func (s observed) closeIfLast(l plan.Ledger) plan.Ledger {
	if !l.Empty() {
		return l
	}
	sighting, seen := s.sighting(l.BlockID)
	if seen && !s.pool().Owns(sighting.Block) {
		if l.AssignedHere {
			return l.Close()
		}
		return l
	}
	if s.awaited() {
		return l
	}
	return l.Close()
}

// awaited tells whether another Service waits for an address of the pool.
func (s observed) awaited() bool {
	return slices.ContainsFunc(s.services, func(other *corev1.Service) bool {
		if other.UID == s.service.UID || !contract.WantsAddress(other) {
			return false
		}
		wanted, err := readDesired(other, s.options)
		if err != nil || !wanted.shared {
			return false
		}
		return !slices.ContainsFunc(s.ledgers, func(l plan.Ledger) bool {
			_, holds := l.AddressOf(holderOf(other))
			return holds
		})
	})
}

// addClosed adds what is left to do for a closed ledger.
func (f *releasePlan) addClosed(s observed, l plan.Ledger) {
	sighting, seen := s.sighting(l.BlockID)
	if !seen {
		f.drop = append(f.drop, l)
		return
	}
	step := plan.Step{Action: plan.Done}
	switch {
	case s.pool().Owns(sighting.Block):
		step = plan.ReleaseBlock(sighting, s.view(nil))
	case plan.Brought(sighting.Block, s.owner.Cluster, s.options.ownBlocks):
		step = plan.ReleaseBrought(sighting, l.AssignedHere, s.view(nil))
	}
	switch {
	case step.Action != plan.Done:
		f.steps = append(f.steps, step)
	case !s.onNetwork(sighting.Block) || l.Spent(func(a netip.Addr) bool { return silent(s.nodes, a) }, s.now):
		f.drop = append(f.drop, l)
	default: // somebody may still answer for its addresses; Sweep drops the ledger when they have rested
	}
}

// onNetwork tells whether the addresses of the block can be reached through the public network.
func (s observed) onNetwork(block plan.Block) bool {
	return block.ResourceID == s.networkID || s.networks[s.networkID].Listed(block.ID)
}

// retaining returns what the Service says about whether its block outlives it. told is false where it does
// not say, or not in a way that can be understood: then the tag of the block stays as it is.
func retaining(live *corev1.Service) (retain, told bool) {
	if live == nil {
		return false, false
	}
	switch live.Annotations[contract.ServiceIPRetain] {
	case contract.TagTrue:
		return true, true
	case "", "false":
		return false, true
	default:
		return false, false
	}
}

// applyRelease does one of the things that are left to do. It returns where that leaves the Service; empty
// when there was nothing that could be done.
func (b *Balancer) applyRelease(ctx context.Context, s observed, f releasePlan) (plan.Reason, error) {
	switch {
	case f.answering:
		return reasonAnnounced, nil
	case len(f.save) > 0:
		return reasonLedger, b.ledgers.save(ctx, f.save...)
	case f.tags != nil:
		if err := b.retag(ctx, s.service, f.retag, f.tags); err != nil && !isBadRequest(err) {
			return "", err
		}
		return reasonRetagging, nil
	}
	if err := b.dropLedgers(ctx, f.drop); err != nil {
		return "", err
	}
	return b.takeFirst(ctx, s.service, f.steps)
}

func (b *Balancer) dropLedgers(ctx context.Context, all []plan.Ledger) error {
	for _, l := range all {
		if err := b.ledgers.remove(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// conclude says what the release waits for, or clears up after it.
func (b *Balancer) conclude(ctx context.Context, known, live *corev1.Service, f releasePlan, acted plan.Reason) error {
	step := f.next()
	switch {
	case acted != "":
		b.note(ctx, live, acted, words(acted))
		return b.retry(known, acted)
	case step.Action == plan.Done:
		return b.clear(ctx, live)
	case step.Action == plan.Refuse:
		return b.refuseRelease(ctx, known, live, step)
	default:
		reason := b.rests.standing(step)
		b.note(ctx, live, reason, words(reason))
		return b.retry(known, reason)
	}
}
