package pnapsim

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// memory is what the judge remembers of a client's requests.
type memory struct {
	notBefore  map[string]pause       // operation → what Retry-After said last
	conflicts  map[string]time.Time   // request → when it met 409
	failures   map[string]failure     // request → its 5xx in a row
	unanswered map[string]bool        // creation whose outcome the client cannot know
	recent     map[string][]time.Time // operation → requests of the last minute
}

type failure struct {
	count int
	at    time.Time
}

// Rules of pace, in the clients' time.
const (
	// conflictPause is the least time between a 409 and the same request again.
	conflictPause = time.Second
	// firstBackoff is the least time after the first 5xx; it doubles with each further one.
	firstBackoff = 250 * time.Millisecond
	// maxBackoff is the longest time that the judge asks for.
	maxBackoff = 15 * time.Second
	// tokenGrace is how long a token may be seen after it was first refused: requests in flight carry it still.
	tokenGrace = 2 * time.Second
)

// creations are the requests that must not be repeated blindly, with the lists that show their outcome.
var creations = map[string][]string{
	"POST /ips/v1/ip-blocks":             {"GET /ips/v1/ip-blocks", "GET /tag-manager/v1/tags"},
	"POST /bmc/v1/servers":               {"GET /bmc/v1/servers"},
	"POST /networks/v1/public-networks":  {"GET /networks/v1/public-networks"},
	"POST /networks/v1/private-networks": {"GET /networks/v1/private-networks"},
	"POST /networks/v1/bgp-peer-groups":  {"GET /networks/v1/bgp-peer-groups"},
}

// ClientRestarted informs the judge that a client lost its memory: a new process cannot keep a pause that an earlier
// one was asked to keep. What it must not repeat blindly it still must not.
func (s *Sim) ClientRestarted(clientID string) {
	defer s.enter()()
	if m := s.judge.memories[clientID]; m != nil {
		delete(s.judge.memories, clientID)
		s.memoryOf(s.clients[clientID]).unanswered = m.unanswered
	}
}

func (s *Sim) memoryOf(c *client) *memory {
	m := s.judge.memories[c.ID]
	if m == nil {
		m = &memory{
			notBefore: map[string]pause{}, conflicts: map[string]time.Time{}, failures: map[string]failure{},
			unanswered: map[string]bool{}, recent: map[string][]time.Time{},
		}
		s.judge.memories[c.ID] = m
	}
	return m
}

// pause is what an answer with Retry-After asks for, and when it was given.
type pause struct{ at, until time.Time }

// requestKey identifies identical requests.
func requestKey(r *http.Request, raw []byte) string {
	return fmt.Sprintf("%s %s %x", r.Method, r.URL.RequestURI(), sha256.Sum256(raw))
}

// judgePace checks a request when it comes in.
func (s *Sim) judgePace(c *client, op *operation, r *http.Request, raw []byte) {
	if c == nil || !c.Judged {
		return
	}
	m, name, key := s.memoryOf(c), op.name(), requestKey(r, raw)
	// What came in at the instant of the answer was on its way already.
	if named := m.notBefore[name]; s.now.After(named.at) && s.now.Before(named.until) {
		s.violate(c, "retry-after", "%s before the time that 429 named", name)
	}
	if at, met := m.conflicts[key]; met && s.now.Sub(at) < s.clientTime(conflictPause) {
		s.violate(c, "retry-conflict", "%s again at once after 409", name)
	}
	f := m.failures[key]
	if f.count > 0 && s.now.Sub(f.at) < s.clientTime(loop.Backoff(firstBackoff, maxBackoff, f.count-1)) {
		s.violate(c, "retry-backoff", "%s again too soon after failure number %d in a row", name, f.count)
	}
	if m.unanswered[name] {
		s.violate(c, "repeated-post", "%s again after a lost answer without looking whether it was done", name)
	}
	s.judgeBudget(c, m, name)
}

func (s *Sim) judgeBudget(c *client, m *memory, operation string) {
	if c.RequestsPerMinute <= 0 {
		return
	}
	since := s.now.Add(-s.clientTime(time.Minute))
	recent := slices.DeleteFunc(m.recent[operation], func(at time.Time) bool { return !at.After(since) })
	m.recent[operation] = append(recent, s.now)
	if float64(len(m.recent[operation])) > c.RequestsPerMinute {
		s.violate(c, "request-budget", "%s: %d requests within a minute; %g were declared", operation,
			len(m.recent[operation]), c.RequestsPerMinute)
	}
}

// judgeAnswer remembers what the client is about to learn.
func (s *Sim) judgeAnswer(c *client, op *operation, r *http.Request, raw []byte, d *delivery) {
	if c == nil || !c.Judged {
		return
	}
	m, name, key := s.memoryOf(c), op.name(), requestKey(r, raw)
	status := d.reply.status
	delete(m.conflicts, key)
	switch {
	case status == http.StatusTooManyRequests && d.fault != nil:
		until := s.now.Add(s.clientTime(time.Duration(d.fault.RetryAfter) * time.Second))
		m.notBefore[name] = pause{at: s.now, until: until}
	case status == http.StatusConflict:
		m.conflicts[key] = s.now
	case status == http.StatusOK && (d.fault == nil || d.fault.Action == FaultDropField): // that is a look, too
		for creation := range m.unanswered {
			if slices.Contains(creations[creation], name) {
				delete(m.unanswered, creation)
			}
		}
	}
	if status >= http.StatusInternalServerError {
		m.failures[key] = failure{count: m.failures[key].count + 1, at: s.now}
	} else {
		delete(m.failures, key)
	}
	if creations[name] != nil && outcomeUnknown(status, d.fault) {
		m.unanswered[name] = true
	}
}

// outcomeUnknown reports whether a client cannot see from an answer whether the request was done.
func outcomeUnknown(status int, f *Fault) bool {
	return status >= http.StatusInternalServerError || f != nil &&
		slices.Contains([]string{FaultHang, FaultReset, FaultLost, FaultEmpty, FaultTruncate}, f.Action)
}

// judgeLost remembers that a client went away before it got an answer.
func (s *Sim) judgeLost(e *Entry) {
	if c := s.clients[e.Client]; c != nil && c.Judged && creations[e.Operation] != nil {
		s.memoryOf(c).unanswered[e.Operation] = true
	}
}
