package pnapsim

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"
)

// What a fault does to the requests that it matches.
const (
	FaultStatus    = "status"     // answers with Status (and RetryAfter) instead of doing anything.
	FaultHTML      = "html"       // answers with Status, 502 by default, and a page of HTML, as a proxy does.
	FaultEmpty     = "empty"      // does the request and answers without a body.
	FaultTruncate  = "truncate"   // does the request and cuts the JSON of the answer in half.
	FaultDropField = "drop-field" // does the request and leaves out Field, of the list's element Element or of all.
	FaultOmit      = "omit"       // does the request and leaves out the element number Element of a list.
	FaultDelay     = "delay"      // does the request and answers Delay later.
	FaultHang      = "hang"       // does nothing and never answers.
	FaultReset     = "reset"      // does nothing and resets the connection.
	FaultLost      = "lost"       // does the request, then resets the connection.
	FaultDuplicate = "duplicate"  // does the request twice, as when it was delivered twice.
	FaultOutcome   = "outcome"    // lets what the request starts end as Outcome says, Delay later than it would.
)

// How an assignment or unassignment, or a change of a BGP peer group, may end.
const (
	OutcomeError  = "error"  // ends in "error assigning" or "error unassigning", or a peer group in ERROR.
	OutcomeRevert = "revert" // lets an assigned block fall back to unassigned.
	OutcomeLate   = "late"   // ends as it should, only later.
)

// Fault is a failure to inject. Faults are tried in the order in which they were armed; the first
// that matches a request and is neither used up nor over applies. A GET whose connection is reset is
// sent again by Go's HTTP client by itself.
type Fault struct {
	// Method of the requests; empty means any.
	Method string `json:"method,omitempty"`
	// Path of the requests, a pattern of path.Match such as "/ips/v1/ip-blocks/*"; empty means any,
	// the token endpoint included.
	Path string `json:"path,omitempty"`
	// Client and Account restrict it to those of one client or account; empty means any.
	Client  string `json:"client,omitempty"`
	Account string `json:"account,omitempty"`
	// Skip is how many matching requests pass before it begins.
	Skip int `json:"skip,omitempty"`
	// Times is how many requests it hits; 0 means one, a negative number all.
	Times int `json:"times,omitempty"`
	// For is how long it is armed, in model time; 0 means forever.
	For Duration `json:"for,omitempty"`
	// Action is one of the constants Fault….
	Action string `json:"action"`
	// Status of FaultStatus and FaultHTML.
	Status int `json:"status,omitempty"`
	// RetryAfter is a header of FaultStatus, in seconds of the client's time. RetryAfterText is the same header as
	// it is written, such as a date, or what no server may write; it takes precedence.
	RetryAfter     int    `json:"retryAfter,omitempty"`
	RetryAfterText string `json:"retryAfterText,omitempty"`
	// Field and Element of FaultDropField. Element is that of FaultOmit, too; a shorter list stays as it is. A negative
	// Element of FaultDropField is all of them.
	Field   string `json:"field,omitempty"`
	Element int    `json:"element,omitempty"`
	// Delay of FaultDelay and FaultOutcome, in model time.
	Delay Duration `json:"delay,omitempty"`
	// Outcome of FaultOutcome, one of the constants Outcome….
	Outcome string `json:"outcome,omitempty"`
}

type fault struct {
	Fault
	seen int
	hits int
	ends time.Time
}

// Arm adds a fault. An unknown action, outcome or pattern is an error.
func (s *Sim) Arm(f Fault) error {
	actions := []string{
		FaultStatus, FaultHTML, FaultEmpty, FaultTruncate, FaultDropField, FaultOmit, FaultDelay, FaultHang, FaultReset,
		FaultLost, FaultDuplicate, FaultOutcome,
	}
	if !slices.Contains(actions, f.Action) {
		return fmt.Errorf("fault action %q: want one of %q", f.Action, actions)
	}
	if outcomes := []string{OutcomeError, OutcomeRevert, OutcomeLate}; f.Action == FaultOutcome &&
		!slices.Contains(outcomes, f.Outcome) {
		return fmt.Errorf("fault outcome %q: want one of %q", f.Outcome, outcomes)
	}
	if f.Action == FaultStatus && (f.Status < 100 || f.Status > 599) {
		return fmt.Errorf("fault status %d: want an HTTP status", f.Status)
	}
	if _, err := path.Match(f.Path, ""); err != nil {
		return fmt.Errorf("fault path %q: %w", f.Path, err)
	}
	defer s.enter()()
	armed := &fault{Fault: f}
	if f.For > 0 {
		armed.ends = s.now.Add(time.Duration(f.For))
	}
	s.faults = append(s.faults, armed)
	return nil
}

// Disarm removes all faults.
func (s *Sim) Disarm() {
	defer s.enter()()
	s.faults = nil
}

// takeFault finds the fault that applies to a request: one with an outcome, or one of the other actions.
func (s *Sim) takeFault(r *http.Request, c *client, outcome bool) *Fault {
	for _, f := range s.faults {
		if (f.Action == FaultOutcome) != outcome || !f.matches(r, c, s.now) {
			continue
		}
		f.seen++
		if f.seen <= f.Skip {
			continue
		}
		f.hits++
		return &f.Fault
	}
	return nil
}

func (f *fault) matches(r *http.Request, c *client, now time.Time) bool {
	hit, err := path.Match(f.Path, r.URL.Path)
	return (f.Times < 0 || f.hits < max(f.Times, 1)) &&
		(f.ends.IsZero() || now.Before(f.ends)) &&
		(f.Method == "" || f.Method == r.Method) &&
		(f.Client == "" || c != nil && c.ID == f.Client) &&
		(f.Account == "" || c != nil && c.account == f.Account) &&
		(f.Path == "" || err == nil && hit)
}

// faultReplaces applies a fault that keeps a request from being done, and reports whether it does.
func (s *Sim) faultReplaces(d *delivery) bool {
	d.entry.Fault = d.fault.Action
	switch d.fault.Action {
	case FaultStatus:
		d.reply = refuse(d.fault.Status, "This failure was injected.")
		switch {
		case d.fault.RetryAfterText != "":
			d.reply.header = http.Header{"Retry-After": {d.fault.RetryAfterText}}
		case d.fault.RetryAfter > 0:
			d.reply.header = http.Header{"Retry-After": {strconv.Itoa(d.fault.RetryAfter)}}
		}
		s.encode(d, nil)
	case FaultHTML:
		d.reply = reply{status: http.StatusBadGateway, header: http.Header{"Content-Type": {"text/html"}}}
		if d.fault.Status != 0 {
			d.reply.status = d.fault.Status
		}
		d.raw = []byte("<html><body><h1>Bad Gateway</h1></body></html>")
	case FaultHang, FaultReset:
		d.reply = reply{}
	case FaultDelay:
		d.until = d.until.Add(time.Duration(d.fault.Delay))
		return false
	default:
		return false
	}
	return true
}

// garble damages the bytes of an answer as the fault says.
func (s *Sim) garble(d *delivery, body any) {
	if d.fault == nil {
		return
	}
	switch d.fault.Action {
	case FaultEmpty:
		d.raw = nil
	case FaultTruncate:
		d.raw = d.raw[:len(d.raw)/2]
	case FaultDropField:
		list, _ := body.([]any)
		for i := range list {
			if d.fault.Element == i || d.fault.Element < 0 {
				dropField(list[i], d.fault.Field)
			}
		}
		dropField(body, d.fault.Field)
		d.raw = marshal(body, d.raw)
	case FaultOmit:
		if list, ok := body.([]any); ok && d.fault.Element < len(list) {
			d.raw = marshal(slices.Delete(list, d.fault.Element, d.fault.Element+1), d.raw)
		}
	}
}

func dropField(value any, name string) {
	o, _ := value.(object)
	delete(o, name)
}

// reset ends the connection without an answer, with a TCP RST where the transport allows it.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the server then closes the connection
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // makes Close send RST; without it a FIN works, too
	}
	_ = conn.Close() // nothing more to be done with it
}
