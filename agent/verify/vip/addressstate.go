package vip

import (
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/debounce"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// badSamples is how many samples in a row confirm a failure: a takeover leaves an address silent for a moment.
	badSamples = 2
	// confirm is the time between the two samples if they probe the wire; confirmKernel if only the kernel is read.
	confirm       = 2 * time.Second
	confirmKernel = 500 * time.Millisecond
	// startupTime is how long an announcer has to add the address of a new Service, or an agent that starts to receive
	// its announcements, before silence counts.
	startupTime = 15 * time.Second
	// electionWait is how long to wait for the result of the election, which may show more than the wire.
	electionWait = 5 * time.Second
	// reasonWait is how long the controller has to report that an address is silent because its Service has no
	// endpoints.
	reasonWait = 5 * time.Second
	// takeoverTime is how long the next owner may take when the last one stepped down: candidates check every 2 to
	// 4.4 s with kube-vip's own settings (client-go's leaderelection: RetryPeriod and JitterFactor).
	takeoverTime = 6 * time.Second
)

// result is what is held of an address once enough samples agree.
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
	// counted is when the last sample was counted towards that class; nextLook is when the next one must confirm it, on
	// the wire if atWire. Zero when there is nothing to confirm.
	counted, nextLook time.Time
	atWire            bool
	// failures are those that were confirmed; goodSince is when the row of good samples began after the last.
	failures  debounce.Failures
	goodSince time.Time
	// unpublishedSince is since when the Service's condition has not shown what this node would report, see assessment.
	unpublishedSince time.Time
	// involved: this node holds the address or should hold it; suspicious: the last probe did not show one answer.
	involved, suspicious bool
	// held and macs are those of the last observation; movedAt is when they became so.
	held, macs []string
	movedAt    time.Time
	// moved reports that the kernel carries the address now and did not at the last sample, or the other way round.
	moved bool
	// metAt is when the address was watched first, answeredOnce that it has answered since.
	metAt        time.Time
	answeredOnce bool
	// goneAt is when no Service had the address any more; leftAt is when this node, which reports an answer, saw that
	// no Service intends to keep it, where announcers stop answering at once.
	goneAt, leftAt time.Time
	// silentAt is when it was confirmed that no machine answers; zero while one does.
	silentAt time.Time
	// unasked is why the last probe could not be sent.
	unasked string
	// recorded is the finding of the last event; its ID is empty before the first.
	recorded check.Finding
	// elected reports that this node should answer, by the last known election.
	elected bool

	machines   int
	mismatch   time.Duration
	observedAt time.Time
}

// resume returns the state of an address that the previous agent of this node reported.
func resume(entry contract.ReportedAddress) *addressState {
	st := &addressState{}
	if entry.State == contract.AddressAnswered {
		st.recorded = check.Finding{ID: AddressAnswers, Reason: ReasonAnswered}
	}
	return st
}

// update notes what is known before the wire is probed.
func (st *addressState) update(s subject, view View) {
	held := Observation{Interface: view.Report.Interface, Held: view.Snapshot.Holds(s.Address),
		Answers: view.answers(s.Address)}.held()
	st.moved = !slices.Equal(held, st.held)
	if st.metAt.IsZero() {
		st.metAt = time.Now()
	}
	st.involved = len(held) > 0 || len(st.held) > 0 || st.elected || s.named(view.By, view.Node)
	switch {
	case s.phase != gone:
		st.goneAt = time.Time{}
	case st.goneAt.IsZero():
		st.goneAt = time.Now()
	}
}

// needsProbe reports whether the address must be probed whatever was received.
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
	st.held = held
	st.macs = macs
	st.machines = len(o.MACs)
	if len(held) > 0 {
		st.machines++
	}
	st.suspicious = st.machines != 1 || (len(held) == 0 && !o.Replied)
}

// observe takes an observation and returns the current assessment; st.nextLook is when it must be confirmed.
func (st *addressState) observe(s subject, o Observation, mac, node string, now time.Time) assessment {
	if o.Election.State != "" {
		st.elected = o.elected()
		st.involved = st.involved || st.elected
	}
	sample := result{entry: entryOf(o, mac)}
	if s.phase == published || s.phase == gone && len(st.held) > 0 && now.Sub(st.goneAt) >= withdrawalTime {
		sample.finding = Evaluate(o)
	}
	st.suspicious = st.suspicious || bad(sample) && !kernelOnly(sample.finding.ID)
	st.answeredOnce = st.answeredOnce || sample.entry.State != contract.AddressSilent
	if class := classOf(sample); class != st.class {
		st.class = class
		st.classSince = now
		st.counted = time.Time{}
	}
	turnAt := st.turnAt(node, s, o)
	held, settled := st.take(sample, o.Asked, latest(turnAt, st.electionAt(o, sample)), now)
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
	held = st.awaitReason(held, s, o, now)
	st.account(held.finding, now)
	return assessment{
		subject: s, finding: held.finding, entry: held.entry, settled: settled, unpublishedSince: st.unpublishedSince,
		involved: st.involved,
		atOnce:   turnAt.IsZero(), expired: s.phase == gone && len(st.held) == 0 && now.Sub(st.goneAt) >= remembered,
	}
}

// awaitReason leaves open why no machine answers until the controller, which this node's report of it wakes, has looked
// whether the Service has endpoints. An election that expired shows that it had some.
func (st *addressState) awaitReason(held result, s subject, o Observation, now time.Time) result {
	if held.finding.Reason != ReasonNoAnswer {
		st.silentAt = time.Time{}
		return held
	}
	if st.silentAt.IsZero() {
		st.silentAt = now
	}
	until := st.silentAt.Add(reasonWait)
	explained := o.by().NeedsEndpoints() == "" || o.Election.State == announcer.Expired || s.reported(held.entry.State)
	if explained || !now.Before(until) {
		return held
	}
	if st.nextLook.IsZero() || until.Before(st.nextLook) {
		st.nextLook = until
	}
	return unconfirmed(held)
}

// take counts a sample. A bad sample counts when an announcer has had the time to add the address, and is confirmed by
// a second sample some time later, not before last. A confirmed failure may change to another one of its class at once.
// asked is when the wire was probed.
func (st *addressState) take(sample result, asked, last, now time.Time) (held result, settled bool) {
	st.nextLook = time.Time{}
	st.atWire = !kernelOnly(sample.finding.ID) && sample.finding.Reason != ReasonNotAsked
	held, settled = st.value.Held()
	if !bad(sample) {
		return st.recover(sample, now)
	}
	st.goodSince = time.Time{}
	if settled && (st.class == st.value.Class() || explains(sample, held)) {
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

// recover takes a good sample. One is enough, unless the address failed often recently: then it must stay healthy.
func (st *addressState) recover(sample result, now time.Time) (held result, settled bool) {
	if st.goodSince.IsZero() {
		st.goodSince = now
	}
	held, settled = st.value.Held()
	if until := st.goodSince.Add(st.failures.Hold(now)); settled && bad(held) && now.Before(until) {
		st.nextLook = until
		return held, settled
	}
	held, settled, _ = st.value.Observe(sample, st.class, 1)
	return held, settled
}

// startupEnd is when an announcer has had the time to add the address.
func (st *addressState) startupEnd() time.Time {
	if st.answeredOnce || !st.leftAt.IsZero() {
		return time.Time{}
	}
	return st.metAt.Add(startupTime)
}

// turnAt is when it is this node's turn to confirm what every other node may see, too: the zero Time where this node is
// involved, is the only one that sent the probe that shows it, or others wait for it.
func (st *addressState) turnAt(node string, s subject, o Observation) time.Time {
	if st.involved || !st.leftAt.IsZero() || o.Announced && !o.Replied {
		return time.Time{}
	}
	return st.classSince.Add(turn(node, s.Address))
}

// electionAt is when to confirm that no machine or more than one answers although it is not known yet which should, or
// another node is about to be elected: the zero Time where the election can show nothing more.
func (st *addressState) electionAt(o Observation, sample result) time.Time {
	switch id := sample.finding.ID; {
	case sample.finding.Reason == ReasonNotAsked:
		return time.Time{}
	case id == AddressAnswers && o.Election.State == announcer.Released:
		return st.classSince.Add(takeoverTime)
	case o.ElectionAwaited && (id == AddressAnswers || id == SingleAnswer):
		return st.classSince.Add(electionWait)
	default:
		return time.Time{}
	}
}

// classOf returns the class of a sample: samples of one class may replace each other at once.
func classOf(b result) string { return string(b.finding.Status) + " " + string(b.entry.State) }

// explains reports whether a sample only adds to a result why no machine answers: the controller knows that.
func explains(sample, held result) bool {
	return sample.finding.Reason == ReasonNoEndpoints && held.finding.Reason == ReasonNoAnswer
}

// kernelOnly reports whether a finding depends only on this node's kernel.
func kernelOnly(id check.ID) bool { return id == RightInterface || id == ReturnByNetwork }

// bad reports whether a sample must be confirmed.
func bad(b result) bool {
	if b.finding.ID == "" {
		return b.entry.State == contract.AddressSilent
	}
	return b.finding.Status != check.OK
}

func unconfirmed(b result) result {
	if b.finding.ID != "" {
		b.finding.Status = check.Unknown
		b.finding.Reason = ReasonConfirming
		b.finding.Cause = "not confirmed yet: " + b.finding.Cause
	}
	return b
}

// account adds the time since the last sample to that in which wire and election contradicted each other.
func (st *addressState) account(f check.Finding, now time.Time) {
	if slices.Contains([]check.ID{HolderAnswers, NothingStale, RightNode}, f.ID) && f.Status == check.Fail &&
		!st.observedAt.IsZero() {
		st.mismatch += now.Sub(st.observedAt)
	}
	st.observedAt = now
}

// toRecord returns a finding that this node must record because it differs from the last one. Nodes that are not
// involved record only what they also report. The node that holds the address records that it answers; after a failure,
// the node that recorded the failure does.
func (st *addressState) toRecord(o assessment, reporting bool) (check.Finding, bool) {
	f := o.finding
	repeated := st.recorded.Reason == f.Reason && st.recorded.ID == f.ID
	othersTurn := !o.involved && !reporting || f.Status == check.OK && st.recorded.ID == "" && !o.entry.Held
	open := f.ID == "" || f.Reason == ReasonConfirming
	if !o.settled || o.service == nil || open || repeated || othersTurn {
		return check.Finding{}, false
	}
	st.recorded = f
	return f, true
}

const (
	// leavingInterval is the time between samples of an address whose Service leaves, where announcers stop at once,
	// and the controller waits, for 10 s at most, until no node reports an answer any more.
	leavingInterval = 500 * time.Millisecond
	// leavingPeriod is how long to sample that often.
	leavingPeriod = 20 * time.Second
)

// noteLeaving notes whether the address leaves, its announcer stops at once, and this node reports an answer.
func (st *addressState) noteLeaving(s subject, view View, said contract.AddressState) {
	switch {
	case s.phase == published || view.By.Placement() != announcer.UserSpace || said == "" ||
		said == contract.AddressSilent:
		st.leftAt = time.Time{}
	case st.leftAt.IsZero():
		st.leftAt = time.Now()
		st.nextLook = st.leftAt
		st.atWire = true
	}
}

// lookForEnd schedules another probe for an address that leaves, until it is confirmed that no machine answers.
func (st *addressState) lookForEnd(held result, now time.Time) {
	if st.leftAt.IsZero() || now.Sub(st.leftAt) > leavingPeriod || held.entry.State == contract.AddressSilent {
		return
	}
	if next := now.Add(leavingInterval); st.nextLook.IsZero() || next.Before(st.nextLook) {
		st.nextLook = next
		st.atWire = true
	}
}
