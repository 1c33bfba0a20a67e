package reconcile

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// How soon something that takes its time is checked again. The API takes seconds to minutes to assign a block, and each
// check is a call: so the pauses grow, and what the account took the last time is not checked much earlier.
const (
	leastPause = 250 * time.Millisecond
	// firstPause is the first pause where a block is read, and growth the factor of each further one.
	firstPause = time.Second
	growth     = 2.2
	// maxGrowth is how often it is applied: the pause is longer than lastPause by then, and would overflow some day.
	maxGrowth = 10
	// lastPause is the longest pause where the whole account is read.
	lastPause = 30 * time.Second
	// driftPeriod is how often Drifted reads the account anyway. What is waited for longer than that is left to it, and
	// checked only where it fails.
	driftPeriod = time.Minute
	// recent is how long ago the network may have been read in which a block is assigned: the API refuses the
	// assignment if it has changed since.
	recent = 5 * time.Second
	// behind is how long after the check for a change the next change of the network is tried.
	behind = 500 * time.Millisecond
)

// pace remembers what Services wait for and since when.
type pace struct {
	mu    sync.Mutex
	waits map[types.UID]waiting
	// usual is how long the account took for a change the last time, by what is waited for.
	usual map[ipblock.Reason]time.Duration
	// leaving is since when Services are known to be on their way out.
	leaving map[types.UID]time.Time
	// ensured are the resource versions of the Services with which Ensure began the last time.
	ensured map[types.UID]string
}

// waiting is what one Service waits for.
type waiting struct {
	reason         ipblock.Reason
	block, network string // the ID of the block that is being changed, and of the network
	dedicated      bool   // the block is the Service's own
	asked          plan.Asked
	since, checked time.Time
	due            time.Time
	pause          time.Duration
	checks         int
}

func newPace() *pace {
	return &pace{waits: map[types.UID]waiting{}, usual: map[ipblock.Reason]time.Duration{},
		leaving: map[types.UID]time.Time{}, ensured: map[types.UID]string{}}
}

// next returns how long to wait before checking again.
func (p *pace) next(uid types.UID, now time.Time, waitsFor waiting) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.waits[uid]
	if known && w.reason == waitsFor.reason && w.block == waitsFor.block {
		if w.early(now) {
			return w.due.Sub(now)
		}
		w.checks++
		w.asked = waitsFor.asked
	} else {
		w = waitsFor
		w.since = now
	}
	w.checked = now
	w.pause = p.pauseOf(w, uid, now)
	w.due = now.Add(w.pause)
	p.waits[uid] = w
	return w.pause
}

// early reports whether it is too early for the next check: an edit of the Service says nothing about what it waits
// for. The longest pause may end halfway, because the check for drift shows some ends.
func (w waiting) early(now time.Time) bool {
	return now.Before(w.due) && (w.pause < lastPause || now.Sub(w.checked) < w.pause/2)
}

func (p *pace) pauseOf(w waiting, uid types.UID, now time.Time) time.Duration {
	waited := now.Sub(w.since)
	if w.needsNetwork() {
		if other, found := p.changing(w.network, uid, now); found {
			return min(max(other.due.Add(behind).Sub(now), conflictBackoff), lastPause)
		}
	}
	switch {
	case w.reason == ipblock.NetworkChanging:
		return min(max(waited, conflictBackoff), lastPause)
	case w.changesBlock():
		usual := p.usual[kindOf(w.reason)]
		pause := w.blockPause(usual)
		if waited+pause > max(driftPeriod, usual+usual/2) {
			return lastPause
		}
		return pause
	default:
		return min(max(waited, leastPause), lastPause)
	}
}

// needsNetwork reports whether what comes after the wait is a change of the network, which takes one at a time.
func (w waiting) needsNetwork() bool {
	return w.reason == ipblock.NetworkChanging || w.reason == ipblock.BlockCreating && w.block != ""
}

// blockPause is the pause before the next check of a block whose change usually takes that long; 0 for not known. A
// block that was bought may be ready at once, as in the example of the API's reference: one more check finds that.
func (w waiting) blockPause(usual time.Duration) time.Duration {
	checks := w.checks
	if w.reason == ipblock.BlockCreating && usual < firstPause {
		if checks == 0 {
			return max(usual, leastPause)
		}
		checks--
	}
	if checks == 0 {
		return min(max(usual, firstPause), driftPeriod)
	}
	pause := max(usual/8, firstPause)
	for range min(checks-1, maxGrowth) {
		pause = time.Duration(float64(pause) * growth)
	}
	if usual == 0 {
		pause = time.Duration(float64(pause) * growth)
	}
	return pause
}

// changesBlock reports whether the wait ends with a change of one block, whose ID is known.
func (w waiting) changesBlock() bool {
	return w.block != "" && slices.Contains([]ipblock.Reason{ipblock.BlockCreating, ipblock.BlockAssigning,
		ipblock.BlockUnassigning}, w.reason)
}

// kindOf says which waits take as long: assigning and unassigning are the same change of the network.
func kindOf(reason ipblock.Reason) ipblock.Reason {
	if reason == ipblock.BlockUnassigning {
		return ipblock.BlockAssigning
	}
	return reason
}

// changing returns the wait of another Service for its change of the network, which keeps it BUSY.
func (p *pace) changing(network string, uid types.UID, now time.Time) (waiting, bool) {
	for other, w := range p.waits {
		if other != uid && w.changesBlock() && w.reason != ipblock.BlockCreating && w.network == network &&
			now.Before(w.due.Add(behind)) {
			return w, true
		}
	}
	return waiting{}, false
}

// waitsFor returns what the Service waits for.
func (p *pace) waitsFor(uid types.UID) (w waiting, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, waits = p.waits[uid]
	return w, waits
}

// began returns since when the Service waits; the zero Time when it does not.
func (p *pace) began(uid types.UID) time.Time {
	w, _ := p.waitsFor(uid)
	return w.since
}

// blocked reports whether another Service changes the network.
func (p *pace) blocked(network string, uid types.UID, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, found := p.changing(network, uid, now)
	return found
}

// recordDuration remembers how long the account took. Where the first check has shown the end, the next one comes a
// little earlier: it may have taken less.
func (p *pace) recordDuration(w waiting, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := now.Sub(w.since)
	if w.checks == 0 {
		took -= took / 10
	}
	p.usual[kindOf(w.reason)] = took
}

// history returns since when the Service waits for a quarantined address, now when it does not, and since when it is
// known to leave, the zero Time when it is not.
func (p *pace) history(uid types.UID, now time.Time) (quarantinedSince, leaving time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, known := p.waits[uid]; known && w.reason == ipblock.AddressQuarantined {
		now = w.since
	}
	return now, p.leaving[uid]
}

// freshness returns how old the picture of the account may be for the Service: while it waits for what the account
// shows, half its pause, so that those who wait at the same time look together. A Service that no one has changed since
// the last time uses what the check for drift reads once a minute, and others the zero time.
func (p *pace) freshness(service *corev1.Service, now time.Time) time.Time {
	w, waits := p.waitsFor(service.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case waits && w.reason != ipblock.AddressQuarantined && w.reason != ipblock.NoNodeReady:
		return now.Add(-w.pause / 2)
	case service.ResourceVersion != "" && p.ensured[service.UID] == service.ResourceVersion &&
		(!waits || w.reason == ipblock.NoNodeReady):
		return now.Add(-account.PeriodicMaxAge)
	default:
		return time.Time{}
	}
}

// recordVersion records the version of a Service that Ensure began with.
func (p *pace) recordVersion(uid types.UID, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ensured[uid] = version
}

// done says that the Service waits no more.
func (p *pace) done(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, uid)
	delete(p.leaving, uid)
	delete(p.ensured, uid)
}

// markReleasing records since when the Service is being released.
func (p *pace) markReleasing(uid types.UID, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving[uid] = since
}

// progress is what became of what a Service waits for.
type progress int

const (
	// unknown: it waits for nothing that can be read by itself.
	unknown progress = iota
	// pending: it must wait on.
	pending
	// ended: the block that it waits for was read, and has changed.
	ended
)

// check reads only what the Service waits for: its block by its ID, or the network.
func (b *Balancer) check(ctx context.Context, s scope) (progress, error) {
	w, _ := b.pace.waitsFor(s.Service.UID)
	now := b.config.Now()
	switch {
	case w.asked != b.config.SaidBy(s.Service).Asked: // a user has changed the Service
	case w.needsNetwork() && b.pace.blocked(w.network, s.Service.UID, now):
		return pending, nil
	case w.changesBlock():
		return b.checkBlock(ctx, w, now)
	case w.reason == ipblock.NetworkChanging && w.network != "":
		if w.early(now) {
			return pending, nil
		}
		public, err := b.config.Account.Network(ctx, w.network, now.Add(-min(w.pause/2, recent)))
		switch {
		case err == nil && public.Status == network.StatusBusy:
			return pending, nil
		case err == nil && w.block != "":
			return ended, nil
		}
	}
	return unknown, nil
}

// checkBlock reads the block by its ID, unless a list that was read since shows already that it has changed.
func (b *Balancer) checkBlock(ctx context.Context, w waiting, now time.Time) (progress, error) {
	if listing, found := b.config.Account.Known(); found && listing.AskedAt.After(w.checked) {
		i := slices.IndexFunc(listing.Blocks, func(block network.Block) bool { return block.ID == w.block })
		if i >= 0 && ipblock.Changing(listing.Blocks[i]) == "" && listing.Blocks[i].Status == network.Assigned {
			b.pace.recordDuration(w, now)
			return unknown, nil
		}
	}
	public, at, found := b.config.Account.KnownNetwork(w.network)
	if found && w.pause == lastPause && now.Sub(at) <= driftPeriod && public.Status == network.StatusBusy {
		return pending, nil // Drifted will read it again
	}
	if w.early(now) {
		return pending, nil
	}
	block, found, err := b.config.Account.Block(ctx, w.block, now)
	if err != nil || !found {
		return unknown, err
	}
	if ipblock.Changing(block) == w.reason {
		return pending, nil
	}
	b.pace.recordDuration(w, now)
	return ended, nil
}

// keepWaiting is the wait for the same thing as before.
func (b *Balancer) keepWaiting(service *corev1.Service) error {
	w, _ := b.pace.waitsFor(service.UID)
	return b.retry(service, ipblock.Step{Action: ipblock.Wait, Reason: w.reason, Block: network.Block{ID: w.block},
		Network: w.network})
}

// retry asks to be called again, soon after a change and then ever more seldom.
func (b *Balancer) retry(service *corev1.Service, step ipblock.Step) error {
	w := waiting{reason: step.Reason, block: step.Block.ID,
		network: cmp.Or(step.Network, step.Block.ResourceID, b.config.Network.ID),
		asked:   b.config.SaidBy(service).Asked,
		dedicated: step.Block.Tags[contract.TagUsage] == contract.TagUsageAuto &&
			step.Block.Tags[contract.TagPool] == ""}
	return api.NewRetryError(words(step.Reason), b.pace.next(service.UID, b.config.Now(), w))
}
