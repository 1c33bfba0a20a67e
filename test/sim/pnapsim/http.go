package pnapsim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// object is a JSON object of an answer.
type object = map[string]any

// reply is what an operation answers.
type reply struct {
	status int
	body   any // encoded as JSON; nil means an empty body
	header http.Header
}

// call is one request to an API, past authentication and schema.
type call struct {
	op      *operation
	client  *client
	account *account
	params  map[string]string
	query   url.Values
	raw     []byte
	force   bool
	outcome Fault // how what it starts ends, where a fault sets it
	twice   bool  // the second delivery of one request
}

// maxBody bounds a request's body.
const maxBody = 1 << 20

// delivery is an answer with what happens to it on its way.
type delivery struct {
	entry *Entry
	reply reply
	raw   []byte // the encoded body
	fault *Fault
	until time.Time // when the answer goes out, in model time
	// refused is the token that the answer refuses.
	refused *token
}

// Handler serves the APIs, the token endpoint and the control paths under /_fake/.
func (s *Sim) Handler() http.Handler {
	control := s.control()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/_fake/") {
			control.ServeHTTP(w, r)
			return
		}
		s.serve(w, r)
	})
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, object{"message": "The request body cannot be read."})
		return
	}
	d := s.process(r, raw)
	delivered := s.deliver(w, r, d)
	s.finish(d, delivered)
}

// deliver writes the answer as the fault allows and reports whether the client got it.
func (s *Sim) deliver(w http.ResponseWriter, r *http.Request, d *delivery) bool {
	if s.clock.Wait(r.Context(), d.until) != nil {
		return false
	}
	if d.fault != nil {
		switch d.fault.Action {
		case FaultHang:
			<-r.Context().Done()
			return false
		case FaultReset, FaultLost:
			reset(w)
			return false
		}
	}
	if r.Context().Err() != nil {
		return false
	}
	for name, values := range d.reply.header {
		w.Header()[name] = values
	}
	if d.raw != nil && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(d.reply.status)
	_, err := w.Write(d.raw)
	return err == nil
}

// finish records that a client never got its answer.
func (s *Sim) finish(d *delivery, delivered bool) {
	leave := s.enter()
	if !delivered {
		d.entry.Lost = true
		if d.fault == nil || !outcomeUnknown(d.reply.status, d.fault) { // else the client may have looked since
			s.judgeLost(d.entry)
		}
	} else if d.refused != nil && d.refused.refused.IsZero() {
		d.refused.refused = s.now
	}
	entry := *d.entry
	leave()
	if s.cfg.OnEntry != nil {
		s.cfg.OnEntry(entry)
	}
}

// optional adds a property that an answer leaves out when it is empty.
func optional(o object, name, value string) {
	if value != "" {
		o[name] = value
	}
}

// views are values as the API shows them; none are an empty list.
func views[T any](values []T, view func(T) object) []object {
	out := []object{}
	for _, v := range values {
		out = append(out, view(v))
	}
	return out
}

// listing answers with a view of each value that is shown.
func listing[T any](values []T, shown func(T) bool, view func(T) object) reply {
	hidden := func(v T) bool { return !shown(v) }
	return reply{status: http.StatusOK, body: views(slices.DeleteFunc(values, hidden), view)}
}

// lagging answers with what a list was a while ago, or at first, and remembers what it is now.
func (s *Sim) lagging(c *call, lag Duration, now reply) reply {
	if lag == 0 {
		return now
	}
	key := c.op.name() + "?" + c.query.Encode()
	if c.account.answers == nil {
		c.account.answers = map[string][]pastAnswer{}
	}
	past := slices.Concat(c.account.answers[key], []pastAnswer{{s.now, now}})
	for len(past) > 1 && !past[1].at.After(s.now.Add(-time.Duration(lag))) {
		past = past[1:]
	}
	c.account.answers[key] = past
	return past[0].reply
}

func messageOf(body any) string {
	o, _ := body.(object)
	message, _ := o["message"].(string)
	return message
}

// refuse is an error answer (schema Error of all the documents).
func refuse(status int, message string, faults ...string) reply {
	return reply{status: status, body: object{"message": message, "validationErrors": append([]string{}, faults...)}}
}

func forbidden() reply {
	return refuse(http.StatusForbidden,
		"The request failed since this resource cannot be accessed by the provided credentials.")
}

// missing is the answer for a resource that is not there or belongs to another account.
func (s *Sim) missing() reply {
	if s.switches.Missing == http.StatusNotFound {
		return refuse(http.StatusNotFound, "The request failed since the resource could not been found.")
	}
	return forbidden()
}

func invalid(faults ...string) reply {
	return refuse(http.StatusBadRequest,
		"The request failed due to wrong data. Please check the provided parameters and try again.", faults...)
}

func conflict(why string) reply {
	return refuse(http.StatusConflict, "The resource is in an incompatible state.", why)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		klog.Background().V(4).Info("Answer could not be written", "err", err)
	}
}

// process does a request atomically and returns what must be delivered.
func (s *Sim) process(r *http.Request, raw []byte) *delivery {
	defer s.enter()()
	d := &delivery{entry: &Entry{Time: s.now, Method: r.Method, Path: s.blot(r.URL.Path), Query: s.blot(plainQuery(r))},
		until: s.now.Add(time.Duration(s.latency.Response))}
	if r.URL.Path == tokenPath {
		s.processToken(r, raw, d)
	} else {
		s.processAPI(r, raw, d)
	}
	d.entry.Status = d.reply.status
	d.entry.Message = messageOf(d.reply.body)
	s.log.add(d.entry)
	if r.Method != http.MethodGet {
		s.assertInvariants()
	}
	return d
}

func (s *Sim) processToken(r *http.Request, raw []byte, d *delivery) {
	d.entry.Operation = r.Method + " " + tokenPath
	if d.fault = s.takeFault(r, nil, false); d.fault != nil && s.faultReplaces(d) {
		return
	}
	if r.Method != http.MethodPost {
		d.reply = refuse(http.StatusMethodNotAllowed, "Method not allowed.")
	} else if form, err := url.ParseQuery(string(raw)); err != nil {
		d.reply = oauthError(http.StatusBadRequest, "invalid_request", "Malformed form")
	} else {
		d.reply, d.entry.Client = s.issueToken(r, form)
	}
	s.encode(d, nil)
}

// processAPI checks in the order that a client can observe: path, method, token, scope, schema; the
// operation itself checks visibility, state and capacity.
func (s *Sim) processAPI(r *http.Request, raw []byte, d *delivery) {
	d.entry.Body = s.scan(r, raw)
	op, params, status := route(r.Method, r.URL.Path)
	if op == nil {
		d.reply = refuse(status, http.StatusText(status))
		s.violate(nil, "openapi-request", "%s %s is no operation of the API", r.Method, r.URL.Path)
		s.encode(d, nil)
		return
	}
	d.entry.Operation = op.name()
	c, t, valid := s.authenticate(r)
	if c != nil {
		d.entry.Client = c.ID
		d.entry.Account = c.account
	}
	s.judgePace(c, op, r, raw)
	if d.fault = s.takeFault(r, c, false); d.fault != nil && s.faultReplaces(d) {
		s.judgeAnswer(c, op, r, raw, d)
		return
	}
	if t != nil && !valid {
		s.judgeToken(c, t)
		d.refused = t
	}
	request := &call{op: op, client: c, params: params, query: r.URL.Query(), raw: raw}
	request.force = request.query.Get("force") == "true"
	if c != nil {
		request.account = s.accounts[c.account]
	}
	d.reply = s.answer(request, r, t, valid, d)
	if d.fault != nil && d.fault.Action == FaultDuplicate && d.reply.status < http.StatusBadRequest {
		second := *request
		second.outcome = Fault{}
		second.twice = true
		op.handle(s, &second) // no client sees that answer
	}
	s.encode(d, op)
	s.judgeAnswer(c, op, r, raw, d)
}

func (s *Sim) answer(c *call, r *http.Request, t *token, valid bool, d *delivery) reply {
	if c.op.api.read != "" {
		if !valid {
			return refuse(http.StatusUnauthorized,
				"The request failed due to invalid credentials. Please check the provided credentials and try again.")
		}
		if !s.scopeSuffices(c.op, t) {
			return forbidden()
		}
	}
	if faults := s.checkSchema(c, r); len(faults) > 0 {
		return invalid(faults...)
	}
	if f := s.takeFault(r, c.client, true); f != nil {
		c.outcome = *f
		d.entry.Fault = f.Action
	}
	return c.op.handle(s, c)
}

func (s *Sim) scopeSuffices(op *operation, t *token) bool {
	return s.switches.Scopes == "loose" || slices.Contains(t.scopes, op.api.write) ||
		op.method == http.MethodGet && slices.Contains(t.scopes, op.api.read)
}

// checkSchema holds a request against the OpenAPI document; what differs is the client's fault.
func (s *Sim) checkSchema(c *call, r *http.Request) []string {
	var body any
	if len(c.raw) > 0 {
		if err := json.Unmarshal(c.raw, &body); err != nil {
			s.violate(c.client, "openapi-request", "%s: the body is not JSON", c.op.name())
			return []string{"The body is not valid JSON."}
		}
	}
	if s.cfg.Specs == nil {
		return nil
	}
	faults, unknown := s.cfg.Specs.checkRequest(c.op, r, c.params, body, len(c.raw) > 0)
	if s.switches.UnknownProperty == "400" {
		for _, name := range unknown {
			faults = append(faults, fmt.Sprintf("body: unknown property %q", name))
		}
	}
	for _, fault := range faults {
		s.violate(c.client, "openapi-request", "%s: %s", c.op.name(), fault)
	}
	return faults
}

// encode makes the bytes of an answer and holds them against the OpenAPI document; what differs there
// is the simulator's own fault.
func (s *Sim) encode(d *delivery, op *operation) {
	if d.reply.body != nil {
		raw, err := json.Marshal(d.reply.body)
		if err != nil {
			s.violate(nil, "simulator", "encode answer: %v", err)
		}
		d.raw = raw
	}
	if op == nil {
		return
	}
	var body any
	if d.raw != nil {
		if err := json.Unmarshal(d.raw, &body); err != nil {
			s.violate(nil, "simulator", "decode answer: %v", err)
		}
	}
	if s.switches.ExtraFields == "on" {
		addFuture(body)
		d.raw = marshal(body, d.raw)
	}
	if s.cfg.Specs != nil {
		for _, fault := range s.cfg.Specs.checkResponse(op, d.reply.status, body) {
			s.violate(nil, "openapi-response", "%s: %s", op.name(), fault)
		}
	}
	s.garble(d, body)
}

func marshal(body any, otherwise []byte) []byte {
	if body == nil {
		return otherwise
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return otherwise
	}
	return raw
}

// addFuture gives every object a property that today's documents do not know: the real service adds fields freely.
func addFuture(body any) {
	switch value := body.(type) {
	case []any:
		for _, element := range value {
			addFuture(element)
		}
	case object:
		for _, element := range value {
			addFuture(element)
		}
		value["x-future"] = object{"note": "a field that clients must ignore"}
	}
}
