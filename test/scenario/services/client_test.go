//go:build linux

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

const (
	// pace is the time from one request of a watching client to the next.
	pace = 100 * time.Millisecond
	// patience is how long a client waits for an answer that should come.
	patience = 3 * time.Second
	// refusal is how long a client waits for one that should not come.
	refusal = time.Second
	// remedyAfter is how long an address may be silent before a mode's remedy is applied.
	remedyAfter = 20 * time.Second
	// answerLimit is how long an address may take to be announced and served. It takes seconds; on a computer that does
	// ten other things, an emulated machine is that slow.
	answerLimit = 3 * time.Minute
)

// testimony is the answer of a backend: its server, the address of the client, and the port.
type testimony struct {
	server, client, port string
}

func parseTestimony(body string) (testimony, error) {
	fields := strings.Fields(body)
	if len(fields) != 3 {
		return testimony{}, fmt.Errorf("a backend said %q, want its name, the address that asked, and the port", body)
	}
	return testimony{server: fields[0], client: fields[1], port: fields[2]}, nil
}

// target is what a client asks, and from which of its addresses.
type target struct {
	url  string
	from string
}

func tcp(address netip.Addr, port int) target {
	return target{url: fmt.Sprintf("http://%s/asked", netip.AddrPortFrom(address, uint16(port)))}
}

func udp(address netip.Addr, port int) target {
	return target{url: fmt.Sprintf("udp://%s", netip.AddrPortFrom(address, uint16(port)))}
}

// by is the target asked from another address of the client.
func (t target) by(address string) target { return target{url: t.url, from: address} }

func (t target) String() string {
	if t.from == "" {
		return t.url
	}
	return t.url + " from " + t.from
}

// start begins to ask.
func (h *harness) start(t target, interval, timeout time.Duration) int {
	h.Helper()
	spec := lab.Probe{URL: t.url, Interval: interval, Timeout: timeout}
	if t.from != "" {
		spec.From = netip.MustParseAddr(t.from)
	}
	id, err := h.Lab.StartProbe(h.Context(), spec)
	h.must("ask "+t.String(), err)
	return id
}

func (h *harness) attempts(probe int) []lab.Attempt {
	h.Helper()
	all, err := h.Lab.ProbeResults(h.Context(), probe)
	h.must("what the client was answered", err)
	return all
}

func (h *harness) finish(probe int) []lab.Attempt {
	h.Helper()
	all, err := h.Lab.StopProbe(h.Context(), probe)
	h.must("end the client's requests", err)
	return all
}

// answered waits for an answer and returns it.
func (h *harness) answered(t target) testimony {
	h.Helper()
	return h.answeredBy(t, func(testimony) bool { return true })
}

// answeredBy waits for an answer that is as wanted.
func (h *harness) answeredBy(t target, wanted func(testimony) bool) testimony {
	h.Helper()
	probe := h.start(t, 2*pace, patience)
	defer h.finish(probe)
	var found testimony
	h.until(answerLimit, t.String()+" is answered", func() (bool, string) {
		last := "no request yet"
		for _, a := range h.attempts(probe) {
			if !a.OK {
				last = a.Error
				continue
			}
			said, err := parseTestimony(a.Body)
			h.must(t.String(), err)
			if wanted(said) {
				found = said
				return true, ""
			}
			last = fmt.Sprintf("%+v", said)
		}
		return false, last
	})
	return found
}

// answeredWithin reports whether an answer comes in a time.
func (h *harness) answeredWithin(t target, limit time.Duration) bool {
	h.Helper()
	probe := h.start(t, 2*pace, patience)
	defer h.finish(probe)
	for begun := time.Now(); time.Since(begun) < limit; time.Sleep(pace) {
		if slices.ContainsFunc(h.attempts(probe), func(a lab.Attempt) bool { return a.OK }) {
			return true
		}
	}
	return false
}

// answeredAfterMove waits for an answer from an address that a living Service got in the place of another one. Where
// the mode has a remedy that is documented for users, it may be needed.
func (h *harness) answeredAfterMove(t target) {
	h.Helper()
	remedies := 0
	if h.mode.remedy != nil && !h.answeredWithin(t, remedyAfter) {
		remedies++
		h.must("remedy", h.mode.remedy(h.Context(), h.Cluster))
	}
	h.answered(t)
	h.figure("remedy_needed", remedies, "times")
}

// answers asks until it has been answered a number of times, on a new connection each, and returns the answers.
func (h *harness) answers(t target, n int) []testimony {
	h.Helper()
	probe := h.start(t, pace, answerLimit)
	defer h.finish(probe)
	var all []testimony
	h.until(answerLimit, fmt.Sprintf("%s is answered %d times", t, n), func() (bool, string) {
		all = all[:0]
		last := ""
		for _, a := range h.attempts(probe) {
			if !a.OK {
				last = a.Error
				continue
			}
			said, err := parseTestimony(a.Body)
			h.must(t.String(), err)
			all = append(all, said)
		}
		return len(all) >= n, fmt.Sprintf("%d answers, %s", len(all), last)
	})
	return all
}

// refused asks a few times and fails when any is answered.
func (h *harness) refused(t target) {
	h.Helper()
	for _, a := range h.tried(t, 3, refusal) {
		if a.OK {
			h.Errorf("%s is answered: %s", t, a.Body)
		}
	}
}

// tried makes n attempts and waits for their ends.
func (h *harness) tried(t target, n int, timeout time.Duration) []lab.Attempt {
	h.Helper()
	probe := h.start(t, pace/2, timeout)
	h.until(time.Minute, fmt.Sprintf("%d requests to %s have ended", n, t), func() (bool, string) {
		ended := len(h.attempts(probe))
		return ended >= n, fmt.Sprint(ended)
	})
	return h.finish(probe)[:n]
}

// watch is a client that asks ten times a second while Services are changed, and another one that asks a Service that
// is never changed: where that goes without an answer too, the computer was too busy for a result.
type watch struct {
	h              *harness
	probe, control int
	edits          []edit
}

// edit is one change: what it is called in figures, and from when to when its effects are looked for.
type edit struct {
	name     string
	from, to time.Time
}

// impact is what a client saw of an edit.
type impact struct {
	failed  int
	outage  time.Duration
	slowest time.Duration
	// void reports that the control went without an answer, too.
	void bool
}

// watching begins to watch what is answered already.
func (h *harness) watching(t target) *watch {
	h.Helper()
	h.answered(t)
	w := &watch{h: h, probe: h.start(t, pace, patience), control: h.start(h.control, pace, patience)}
	w.settled(w.probe)
	w.settled(w.control)
	return w
}

// settled waits until a client is answered steadily.
func (w *watch) settled(probe int) {
	w.h.Helper()
	const row = 5
	w.h.until(answerLimit, "the watching client is answered steadily", func() (bool, string) {
		all := w.h.attempts(probe)
		if len(all) < row {
			return false, fmt.Sprintf("%d attempts", len(all))
		}
		last := all[len(all)-row:]
		return !slices.ContainsFunc(last, func(a lab.Attempt) bool { return !a.OK }), fmt.Sprintf("%+v", last)
	})
}

// during makes an edit; apply returns when it has taken effect. The edit lasts until the client is answered steadily.
func (w *watch) during(name string, apply func()) {
	w.h.Helper()
	e := edit{name: name, from: time.Now()}
	apply()
	time.Sleep(time.Second) // what the edit has stirred up shows
	w.settled(w.probe)
	e.to = time.Now()
	w.edits = append(w.edits, e)
}

// end reports what the client saw of each edit, in their order.
func (w *watch) end() []impact {
	w.h.Helper()
	time.Sleep(patience + pace) // the last attempts come to their ends
	all, control := w.h.finish(w.probe), w.h.finish(w.control)
	var seen []impact
	for _, e := range w.edits {
		i := impactOf(all, e)
		if c := impactOf(control, e); c.failed > 0 {
			i.void = true
			w.h.Logf("%s: a Service that was not changed went without an answer for %s", e.name, c.outage)
		}
		w.h.figure(e.name+"_failed", i.failed, "requests")
		w.h.figure(e.name+"_outage", i.outage, "s")
		w.h.figure(e.name+"_slowest", i.slowest, "s")
		seen = append(seen, i)
	}
	return seen
}

// harmless fails the test when an edit cost a request, but for those that are named.
func (w *watch) harmless(but ...string) {
	w.h.Helper()
	for i, seen := range w.end() {
		if name := w.edits[i].name; seen.failed > 0 && !seen.void && !slices.Contains(but, name) {
			w.h.Errorf("%s: %d requests failed, over %s; no client is to notice", name, seen.failed, seen.outage)
		}
	}
}

// impactOf evaluates the attempts that began during an edit. The outage is the longest stretch without an answer.
func impactOf(all []lab.Attempt, e edit) impact {
	within := slices.DeleteFunc(slices.Clone(all),
		func(a lab.Attempt) bool { return a.At.Before(e.from) || a.At.After(e.to) })
	var i impact
	for _, a := range within {
		if a.OK {
			i.slowest = max(i.slowest, a.Took)
		} else {
			i.failed++
		}
	}
	for _, o := range lab.Outages(all) {
		if o.From.After(e.to) || (!o.To.IsZero() && o.To.Before(e.from)) {
			continue
		}
		i.outage = max(i.outage, o.Duration())
	}
	return i
}
