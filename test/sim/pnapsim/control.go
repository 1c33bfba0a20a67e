package pnapsim

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// control serves /_fake/: what tests and the demo ask of the simulator itself.
//
//	GET  /_fake/dataplane?revision=N   the data plane, once newer than N
//	GET  /_fake/log?since=N            requests after number N
//	GET  /_fake/counters               requests by operation and status
//	GET  /_fake/violations             broken rules
//	GET  /_fake/money?account=ID       an account's bill
//	GET  /_fake/state?account=ID       an account's blocks, networks and servers as the API returns them
//	POST /_fake/seed                   add accounts (Seed)
//	POST /_fake/faults                 arm a fault (Fault); DELETE disarms all
//	POST /_fake/tokens/revoke?client=ID   end tokens before their time
//	POST /_fake/out-of-band            edit behind the clients' backs (Edit)
//	POST /_fake/claims                 judge a claim (Claim)
//	POST /_fake/leakcheck?client=ID    report every block that a client still has
//	POST /_fake/advance?by=30s         let the model time leap
//	POST /_fake/restart?state=keep     restart, with state kept or (state=lose) lost
func (s *Sim) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_fake/dataplane", s.serveDataPlane)
	read := func(pattern string, answer func(url.Values) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, http.StatusOK, answer(r.URL.Query()))
		})
	}
	read("GET /_fake/log", func(q url.Values) any {
		since, _ := strconv.Atoi(q.Get("since")) // all without a number
		return s.Log(since)
	})
	read("GET /_fake/counters", func(url.Values) any { return s.Counters() })
	read("GET /_fake/violations", func(url.Values) any { return append([]Violation{}, s.Violations()...) })
	read("GET /_fake/money", func(q url.Values) any { return s.Money(q.Get("account")) })
	read("GET /_fake/state", func(q url.Values) any { return s.State(q.Get("account")) })
	read("POST /_fake/leakcheck", func(q url.Values) any {
		return append([]string{}, s.LeakCheck(q.Get("client"), q["except"]...)...)
	})
	mux.HandleFunc("POST /_fake/seed", accept(s.Seed))
	mux.HandleFunc("POST /_fake/faults", accept(s.Arm))
	mux.HandleFunc("POST /_fake/out-of-band", accept(s.OutOfBand))
	mux.HandleFunc("POST /_fake/claims", s.serveClaim)
	do := func(pattern string, change func(url.Values)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			change(r.URL.Query())
			conclude(w, nil)
		})
	}
	do("DELETE /_fake/faults", func(url.Values) { s.Disarm() })
	do("POST /_fake/tokens/revoke", func(q url.Values) { s.RevokeTokens(q.Get("client")) })
	do("POST /_fake/restart", func(q url.Values) { s.Restart(q.Get("state") != "lose") })
	mux.HandleFunc("POST /_fake/advance", func(w http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err != nil || by < 0 {
			conclude(w, errors.New("by: want a duration such as 30s"))
			return
		}
		s.Advance(by)
		conclude(w, nil)
	})
	return mux
}

// conclude answers a change; its error is the client's fault.
func conclude(w http.ResponseWriter, err error) {
	if err != nil {
		writeJSON(w, http.StatusBadRequest, object{"message": err.Error()})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// accept decodes a body and hands it to a method whose error is the client's fault.
func accept[T any](do func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var value T
		if readControl(w, r, &value) {
			conclude(w, do(value))
		}
	}
}

func readControl(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err != nil {
		conclude(w, err)
	}
	return err == nil
}

func (s *Sim) serveClaim(w http.ResponseWriter, r *http.Request) {
	var claim Claim
	if !readControl(w, r, &claim) {
		return
	}
	falsehoods, err := s.Claim(claim)
	if err != nil {
		conclude(w, err)
		return
	}
	writeJSON(w, http.StatusOK, object{"true": len(falsehoods) == 0, "falsehoods": append([]string{}, falsehoods...)})
}

// State is an account's resources as the API returns them, for a reader who has no token.
type State struct {
	// Blocks, Networks and Servers are objects of the APIs.
	Blocks   []map[string]any `json:"blocks"`
	Networks []map[string]any `json:"networks"`
	Servers  []map[string]any `json:"servers"`
}

// State returns what an account has.
func (s *Sim) State(accountID string) State {
	defer s.enter()()
	a := s.accounts[accountID]
	if a == nil {
		a = &account{}
	}
	return State{
		Blocks:   views(inOrder(a.blocks), func(b *block) object { return s.blockView(a, b) }),
		Networks: views(inOrder(a.networks), func(n *network) object { return s.networkView(a, n) }),
		Servers:  views(inOrder(a.servers), func(srv *server) object { return s.serverView(a, srv) }),
	}
}
