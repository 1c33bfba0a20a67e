package sampler

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/debounce"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestDampener(t *testing.T) {
	kernel := check.Finding{ID: check.VLANUp, Severity: check.Error}
	wire := check.Finding{ID: check.GatewayAnswers, Severity: check.Error, Wire: true}
	for name, tc := range map[string]struct {
		finding check.Finding
		samples []check.Status
		want    []check.Status
		pending bool
	}{
		"kernel reports": {kernel, []check.Status{check.OK, check.Fail}, []check.Status{check.OK, check.Fail},
			false},
		"kernel at the start": {kernel, []check.Status{check.Fail}, []check.Status{check.Fail}, false},
		"kernel recovers": {kernel, []check.Status{check.Fail, check.OK, check.Fail, check.OK, check.OK},
			[]check.Status{check.Fail, check.Fail, check.Fail, check.Fail, check.OK}, false},
		"wire at the start": {wire, []check.Status{check.Fail, check.Fail}, []check.Status{check.Unknown, check.Fail},
			false},
		"wire lost one": {wire, []check.Status{check.OK, check.Fail, check.OK},
			[]check.Status{check.OK, check.OK, check.OK}, false},
		"wire is silent": {wire, []check.Status{check.OK, check.Fail, check.Fail},
			[]check.Status{check.OK, check.OK, check.Fail}, false},
		"consequence skipped": {wire, []check.Status{check.Fail, check.Fail, check.Skip},
			[]check.Status{check.Unknown, check.Fail, check.Skip}, false},
		"no more skipped": {wire, []check.Status{check.Skip, check.OK}, []check.Status{check.Skip, check.OK}, false},
		"warning at once": {wire, []check.Status{check.OK, check.Warn, check.OK},
			[]check.Status{check.OK, check.Warn, check.OK}, false},
		"waits for the next": {wire, []check.Status{check.OK, check.Fail}, []check.Status{check.OK, check.OK}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := dampener{}
			var got []check.Status
			var again time.Duration
			for _, status := range tc.samples {
				tc.finding.Status = status
				var report check.Report
				report, again = d.Observe(check.Report{Findings: []check.Finding{tc.finding}}, start)
				got = append(got, report.Findings[0].Status)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || (again > 0) != tc.pending {
				t.Errorf("next sample after %s; statuses (-want +got):\n%s", again, diff)
			}
		})
	}
}

// transitions counts how often the state changes.
func transitions(m *machine) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := 0
	for i := 1; i < len(m.samples); i++ {
		if m.samples[i].Report.Outcome().Status != m.samples[i-1].Report.Outcome().Status {
			count++
		}
	}
	return count
}

// TestAThousandFlaps: an interface that goes down and up all the time makes few transitions, and counts as up again
// when it has been up for a while.
func TestAThousandFlaps(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		for range 1000 {
			m.set(true, func() { m.up = false })
			wait(600 * time.Millisecond)
			m.set(true, func() { m.up = true })
			wait(3 * time.Second)
		}
		if got := transitions(m); got < 2 || got > 30 {
			t.Errorf("1,000 flaps in an hour made %d transitions, want at least one failure and at most 30", got)
		}
		wait(debounce.LastHold + 2*confirm)
		if v := m.verdict(); v.Status != check.OK {
			t.Errorf("%s after the last flap: %s %s", debounce.LastHold, v.Status, v.Reason)
		}
	})
}

// TestFlapsInStep: even a fault that comes back as soon as it counts as gone is bounded.
func TestFlapsInStep(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		for hour := range 2 {
			before := transitions(m)
			for end := time.Now().Add(time.Hour); time.Now().Before(end); wait(500 * time.Millisecond) {
				ready := m.verdict().Status == check.OK
				m.set(true, func() { m.up = !ready })
			}
			if made := transitions(m) - before; made > 60 {
				t.Errorf("hour %d: %d transitions, want at most 60", hour, made)
			}
		}
	})
}

// TestFlapsOfAnyRhythm: for any rhythm, for wire and kernel checks, a check changes at most 60 times an hour, and a
// check that has been good for longer than the longest hold is good.
func TestFlapsOfAnyRhythm(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 100)) {
		random := rand.New(rand.NewPCG(seed, 3))
		d := dampener{}
		now := start
		finding := check.Finding{ID: check.GatewayAnswers, Severity: check.Error, Wire: random.IntN(2) == 0}
		var changes []time.Time
		last := check.OK
		for range 3000 {
			if finding.Status = check.OK; random.IntN(3) == 0 {
				finding.Status = check.Fail
			}
			now = now.Add(time.Duration(1+random.IntN(20)) * 500 * time.Millisecond)
			report, _ := d.Observe(check.Report{Findings: []check.Finding{finding}}, now)
			if status := report.Findings[0].Status; (status == check.OK) != (last == check.OK) {
				changes, last = append(changes, now), status
			}
		}
		for i := 60; i < len(changes); i++ {
			if changes[i].Sub(changes[i-60]) < time.Hour {
				t.Fatalf("seed %d: 61 changes within %s", seed, changes[i].Sub(changes[i-60]))
			}
		}
		finding.Status = check.OK
		for range 3 {
			now = now.Add(debounce.LastHold)
			d.Observe(check.Report{Findings: []check.Finding{finding}}, now)
		}
		if report, again := d.Observe(check.Report{Findings: []check.Finding{finding}},
			now); report.Findings[0].Status != check.OK || again != 0 {
			t.Fatalf("seed %d: %s long after the last flap, next sample in %s", seed, report.Findings[0].Status, again)
		}
	}
}

// TestWorkOnTheMachineIsTolerated: a few failures and repairs cause no delay.
func TestWorkOnTheMachineIsTolerated(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		for attempt := range debounce.Patience {
			m.set(true, func() { m.up = false })
			wait(5 * time.Second)
			m.set(true, func() { m.up = true })
			wait(eventDebounce + confirm)
			if v := m.verdict(); v.Status != check.OK {
				t.Errorf("attempt %d: %s %s after it was fixed", attempt, v.Status, v.Reason)
			}
		}
	})
}
