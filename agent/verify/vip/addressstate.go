package vip

import (
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/debounce"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// badSamples is how many looks in a row it takes to believe that an address is not announced as it should be: a takeover
	// leaves it silent for a moment.
	badSamples = 2
	// confirm is the time between the two looks, if they are at the wire; confirmKernel that for what the kernel alone tells.
	confirm       = 2 * time.Second
	confirmKernel = 500 * time.Millisecond
	// startupTime is how long an announcer has to take up the address of a new Service, or an agent that starts to hear it, before
	// its silence counts.
	startupTime = 15 * time.Second
	// leaseWait is how long to wait for kube-vip's lease, which may tell more than the wire does.
	leaseWait = 5 * time.Second
	// takeoverTime is how long the next holder may take when the last one gave the lease back: candidates look every 2 to 4.4 s
	// with kube-vip's own settings (client-go's leaderelection: RetryPeriod and JitterFactor).
	takeoverTime = 6 * time.Second
)

// result is what is believed of an address once enough samples said so.
type result struct {
	finding check.Finding
	entry   contract.ReportedAddress
}

// addressState is what is remembered of an address from sample to sample.
type addressState struct {
	value debounce.Value[result]
	// class is that of the last sample, since when it is so.
	class      string
	classSince time.Time
	// counted is when the last look was counted towards that class; nextLook is when one is to come that confirms it, at the
	// wire if atWire. Zero when there is nothing to confirm.
	counted, nextLook time.Time
	atWire            bool
	// failures are those that were believed; goodSince is when the row of good samples began after the last.
	failures  debounce.Failures
	goodSince time.Time
	// unpublishedSince is since when the controller has not said what this node would report, see opinion.
	unpublishedSince time.Time
	// involved tells that this node holds the address or ought to; suspicious that something else than one answer was
	// seen last.
	involved, suspicious bool
	// held and macs are those of the last observation; movedAt is when they became so.
	held, macs []string
	movedAt    time.Time
	// moved tells that the kernel carries the address now and did not at the last sample, or the other way round.
	moved bool
	// metAt is when the address was watched first, answeredOnce that it has answered since.
	metAt        time.Time
	answeredOnce bool
	// goneAt is when no Service had the address any more; leftAt is when this node, which says that somebody answers, saw that
	// none means to keep it while agents announce: they cease to answer at once.
	goneAt, leftAt time.Time
	// unasked says why the last question could not be put.
	unasked string
	// recorded is the finding that was told last as an event, hasRecorded that there was one.
	recorded    check.Finding
	hasRecorded bool
	// holdsLease tells that this node held the lease when it was last known.
	holdsLease bool

	machines   int
	mismatch   time.Duration
	observedAt time.Time
}

// resume makes the standing of an address of which the last agent of this node reported something.
func resume(entry contract.ReportedAddress) *addressState {
	st := &addressState{}
	if entry.State == contract.AddressAnswered {
		st.recorded, st.hasRecorded = check.Finding{ID: AddressAnswers, Reason: ReasonAnswered}, true
	}
	return st
}

// update notes what is known before the wire is asked.
func (st *addressState) update(s subject, view View) {
	held := Observation{Interface: view.Report.Interface, Held: view.Snapshot.Holds(s.Address), Answers: view.answers(s.Address)}.held()
	st.moved = !slices.Equal(held, st.held)
	if st.metAt.IsZero() {
		st.metAt = time.Now()
	}
	st.involved = len(held) > 0 || len(st.held) > 0 || st.holdsLease || s.named(view.Node)
	switch {
	case s.phase != gone:
		st.goneAt = time.Time{}
	case st.goneAt.IsZero():
		st.goneAt = time.Now()
	}
}

// needsProbe tells whether the address is to be asked for whatever is heard of it.
func (st *addressState) needsProbe(now time.Time) bool {
	confirms := st.atWire && !st.nextLook.IsZero() && !now.Before(st.nextLook)
	return confirms || st.moved || (st.involved && st.suspicious)
}

// notice compares an observation with the last one.
func (st *addressState) notice(o Observation, now time.Time) {
	held, macs := o.held(), o.MACs
	if len(held) == 0 && !o.Replied {
		macs = nil // what is announced without an answer comes and goes
	}
	if st.movedAt.IsZero() || !slices.Equal(held, st.held) || !slices.Equal(macs, st.macs) {
		st.movedAt = now
	}
	st.held, st.macs = held, macs
	st.machines = len(o.MACs)
	if len(held) > 0 {
		st.machines++
	}
	st.suspicious = st.machines != 1 || (len(held) == 0 && !o.Replied)
}

// observe takes an observation and returns what is believed now; st.nextLook says whether it is to be confirmed.
func (st *addressState) observe(s subject, o Observation, mac, node string, now time.Time) assessment {
	if o.Lease.Standing != "" {
		st.holdsLease = o.holdsLease()
		st.involved = st.involved || st.holdsLease
	}
	sample := result{entry: entryOf(o, mac)}
	if s.phase == published || s.phase == gone && len(st.held) > 0 && now.Sub(st.goneAt) >= withdrawalTime {
		sample.finding = Evaluate(o)
	}
	st.suspicious = st.suspicious || bad(sample) && !kernelOnly(sample.finding.ID)
	st.answeredOnce = st.answeredOnce || sample.entry.State != contract.AddressSilent
	if class := classOf(sample); class != st.class {
		st.class, st.classSince, st.counted = class, now, time.Time{}
	}
	turnAt := st.turnAt(node, s, o)
	held, settled := st.take(sample, o.Asked, latest(turnAt, st.leaseAt(o, sample)), now)
	st.lookForEnd(held, now)
	if !settled {
		held = unconfirmed(sample)
	}
	switch {
	case !settled || s.reported(held.entry.State):
		st.unpublishedSince = time.Time{}
	case st.unpublishedSince.IsZero():
		st.unpublishedSince = now
	}
	st.account(held.finding, now)
	return assessment{
		subject: s, finding: held.finding, entry: held.entry, settled: settled, unpublishedSince: st.unpublishedSince, involved: st.involved,
		atOnce: turnAt.IsZero(), expired: s.phase == gone && len(st.held) == 0 && now.Sub(st.goneAt) >= remembered,
	}
}

// take counts a sample. Bad news counts when an announcer has had the time to take the address up, and is believed after a
// second look some time later, not before last. What is believed to be bad may become another badness of its kind at once.
// asked is when the wire was looked at.
func (st *addressState) take(sample result, asked, last, now time.Time) (held result, settled bool) {
	st.nextLook, st.atWire = time.Time{}, !kernelOnly(sample.finding.ID) && sample.finding.Reason != ReasonNotAsked
	held, settled = st.value.Held()
	if !bad(sample) {
		return st.recover(sample, now)
	}
	st.goodSince = time.Time{}
	if settled && st.class == st.value.Class() {
		held, settled, _ = st.value.Observe(sample, st.class, 1)
		return held, settled
	}
	pause := confirm
	switch {
	case !st.atWire:
		pause = confirmKernel
	case !st.leftAt.IsZero():
		pause = leavingInterval
	}
	at := latest(st.counted.Add(pause), last)
	if st.counted.IsZero() {
		at = st.startupEnd()
	}
	if now.Before(at) || st.atWire && !asked.After(st.counted) {
		st.nextLook = latest(at, now)
		return held, settled
	}
	wasBad := settled && bad(held)
	held, settled, pending := st.value.Observe(sample, st.class, badSamples)
	st.counted = now
	if pending {
		st.nextLook = latest(now.Add(pause), last)
	} else if !wasBad {
		st.failures.Note(now)
	}
	return held, settled
}

// recover takes a good sample. One is enough, unless the address failed so often of late that it must be well for a time.
func (st *addressState) recover(sample result, now time.Time) (held result, settled bool) {
	if st.goodSince.IsZero() {
		st.goodSince = now
	}
	held, settled = st.value.Held()
	if well := st.goodSince.Add(st.failures.Hold(now)); settled && bad(held) && now.Before(well) {
		st.nextLook = well
		return held, settled
	}
	held, settled, _ = st.value.Observe(sample, st.class, 1)
	return held, settled
}

// startupEnd is when an announcer has had the time to take the address up.
func (st *addressState) startupEnd() time.Time {
	if st.answeredOnce || !st.leftAt.IsZero() {
		return time.Time{}
	}
	return st.metAt.Add(startupTime)
}

// turnAt is when it is this node's turn to believe what every other node may see, too: the zero Time where it has to do with
// the address, or alone put the question that shows it, or is waited for.
func (st *addressState) turnAt(node string, s subject, o Observation) time.Time {
	if st.involved || !st.leftAt.IsZero() || o.Announced && !o.Replied {
		return time.Time{}
	}
	return st.classSince.Add(turn(node, s.Address))
}

// leaseAt is when to believe that nobody or more than one answers though it is not known whether somebody should, or another
// holder is about to be elected: the zero Time where the lease says all that it can.
func (st *addressState) leaseAt(o Observation, sample result) time.Time {
	switch id := sample.finding.ID; {
	case sample.finding.Reason == ReasonNotAsked:
		return time.Time{}
	case id == AddressAnswers && o.Lease.Standing == kubevip.Released:
		return st.classSince.Add(takeoverTime)
	case o.LeaseAwaited && (id == AddressAnswers || id == SingleAnswer):
		return st.classSince.Add(leaseWait)
	default:
		return time.Time{}
	}
}

// classOf puts samples together of which one may take the place of another at once.
func classOf(b result) string { return string(b.finding.Status) + " " + string(b.entry.State) }

// kernelOnly tells whether a finding rests on what this node's kernel says of itself.
func kernelOnly(id check.ID) bool { return id == RightInterface || id == ReturnByNetwork }

// bad tells whether a sample is to be confirmed before it is believed.
func bad(b result) bool {
	if b.finding.ID == "" {
		return b.entry.State == contract.AddressSilent
	}
	return b.finding.Status != check.OK
}

func unconfirmed(b result) result {
	if b.finding.ID != "" {
		b.finding.Status, b.finding.Reason, b.finding.Cause = check.Unknown, ReasonConfirming, "not confirmed yet: "+b.finding.Cause
	}
	return b
}

// account adds the time since the last sample to that in which wire and lease contradicted each other.
func (st *addressState) account(f check.Finding, now time.Time) {
	if slices.Contains([]check.ID{HolderAnswers, NothingStale, RightNode}, f.ID) && f.Status == check.Fail && !st.observedAt.IsZero() {
		st.mismatch += now.Sub(st.observedAt)
	}
	st.observedAt = now
}

// toRecord returns a finding that this node is to tell because it is another than the last one. Nodes that have nothing to do
// with the address tell only what they report, too. That an address answers is told by the node that holds it, or after a
// failure by whoever told that.
func (st *addressState) toRecord(o assessment, reporting bool) (check.Finding, bool) {
	f := o.finding
	if !o.settled || o.service == nil || f.ID == "" || (st.hasRecorded && st.recorded.Reason == f.Reason && st.recorded.ID == f.ID) {
		return check.Finding{}, false
	}
	if !o.involved && !reporting {
		return check.Finding{}, false
	}
	first := !st.hasRecorded
	if f.Status == check.OK && first && !o.entry.Held {
		return check.Finding{}, false
	}
	st.recorded, st.hasRecorded = f, true
	return f, true
}
