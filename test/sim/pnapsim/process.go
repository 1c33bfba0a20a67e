package pnapsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

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
		s.violate(nil, "openapi-request", fmt.Sprintf("%s %s is no operation of the API", r.Method, r.URL.Path))
		s.encode(d, nil)
		return
	}
	d.entry.Operation = op.name()
	c, t, valid := s.authenticate(r)
	if c != nil {
		d.entry.Client = c.id
		d.entry.Account = c.account
	}
	s.judgePace(c, op, r, raw)
	if d.fault = s.takeFault(r, c, false); d.fault != nil && s.faultReplaces(d) {
		s.judgeAnswer(c, op, r, raw, d)
		return
	}
	if t != nil && !valid {
		s.refuseToken(c, t)
	}
	d.reply = s.answer(op, params, r, raw, c, t, valid, d)
	if d.fault != nil && d.fault.Action == FaultDuplicate && d.reply.status < http.StatusBadRequest {
		s.again(op, params, r, raw, c)
	}
	s.encode(d, op)
	s.judgeAnswer(c, op, r, raw, d)
}

func (s *Sim) answer(op *operation, params map[string]string, r *http.Request, raw []byte, c *client, t *token,
	valid bool, d *delivery) reply {
	if op.api.read != "" {
		if !valid {
			return refuse(http.StatusUnauthorized,
				"The request failed due to invalid credentials. Please check the provided credentials and try again.")
		}
		if !s.scopeSuffices(op, t) {
			return forbidden()
		}
	}
	if faults := s.checkSchema(op, r, params, raw, c); len(faults) > 0 {
		return refuse(http.StatusBadRequest,
			"The request failed due to wrong data. Please check the provided parameters and try again.", faults...)
	}
	request := s.newCall(op, params, r, raw, c)
	request.outcome = s.takeOutcome(r, c)
	if request.outcome != nil {
		d.entry.Fault = request.outcome.Action
	}
	return op.handle(s, request)
}

func (s *Sim) newCall(op *operation, params map[string]string, r *http.Request, raw []byte, c *client) *call {
	request := &call{op: op, client: c, params: params, query: r.URL.Query(), raw: raw,
		force: r.URL.Query().Get("force") == "true"}
	if c != nil {
		request.account = s.accounts[c.account]
	}
	return request
}

// again delivers a request a second time; no client sees that answer.
func (s *Sim) again(op *operation, params map[string]string, r *http.Request, raw []byte, c *client) {
	second := s.newCall(op, params, r, raw, c)
	second.twice = true
	op.handle(s, second)
}

func (s *Sim) scopeSuffices(op *operation, t *token) bool {
	if s.switches.Scopes == "loose" {
		return true
	}
	if slices.Contains(t.scopes, op.api.write) {
		return true
	}
	return op.method == http.MethodGet && slices.Contains(t.scopes, op.api.read)
}

// checkSchema holds a request against the OpenAPI document; what differs is the client's fault.
func (s *Sim) checkSchema(op *operation, r *http.Request, params map[string]string, raw []byte, c *client) []string {
	var body any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			s.violate(c, "openapi-request", op.name()+": the body is not JSON")
			return []string{"The body is not well-formed JSON."}
		}
	}
	if s.cfg.Specs == nil {
		return nil
	}
	faults, unknown := s.cfg.Specs.checkRequest(op, r, params, body, len(raw) > 0)
	if s.switches.UnknownProperty == "400" {
		for _, name := range unknown {
			faults = append(faults, fmt.Sprintf("body: unknown property %q", name))
		}
	}
	for _, fault := range faults {
		s.violate(c, "openapi-request", op.name()+": "+fault)
	}
	return faults
}

// encode makes the bytes of an answer and holds them against the OpenAPI document; what differs there
// is the simulator's own fault.
func (s *Sim) encode(d *delivery, op *operation) {
	if d.reply.body != nil {
		raw, err := json.Marshal(d.reply.body)
		if err != nil {
			s.violate(nil, "simulator", fmt.Sprintf("encode answer: %v", err))
		}
		d.raw = raw
	}
	if op == nil {
		return
	}
	var body any
	if d.raw != nil {
		if err := json.Unmarshal(d.raw, &body); err != nil {
			s.violate(nil, "simulator", fmt.Sprintf("decode answer: %v", err))
		}
	}
	if s.switches.ExtraFields == "on" {
		addFuture(body)
		d.raw = marshal(body, d.raw)
	}
	if s.cfg.Specs != nil {
		for _, fault := range s.cfg.Specs.checkResponse(op, d.reply.status, body) {
			s.violate(nil, "openapi-response", op.name()+": "+fault)
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

// addFuture gives every object a property that today's documents do not know: the real service adds
// fields freely.
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
