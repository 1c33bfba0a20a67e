package pnapsim

import (
	"encoding/json"
	"net/http"
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
	mux.HandleFunc("GET /_fake/log", func(w http.ResponseWriter, r *http.Request) {
		since, err := strconv.Atoi(r.URL.Query().Get("since"))
		if err != nil {
			since = 0
		}
		writeJSON(w, http.StatusOK, s.Log(since))
	})
	mux.HandleFunc("GET /_fake/counters", func(w http.ResponseWriter,
		_ *http.Request) {
		writeJSON(w, http.StatusOK, s.Counters())
	})
	mux.HandleFunc("GET /_fake/violations", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, append([]Violation{}, s.Violations()...))
	})
	mux.HandleFunc("GET /_fake/money", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, s.Money(r.URL.Query().Get("account")))
	})
	mux.HandleFunc("GET /_fake/state", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, s.State(r.URL.Query().Get("account")))
	})
	s.controlChanges(mux)
	return mux
}

func (s *Sim) controlChanges(mux *http.ServeMux) {
	mux.HandleFunc("POST /_fake/seed", accept(s.Seed))
	mux.HandleFunc("POST /_fake/faults", accept(s.Arm))
	mux.HandleFunc("DELETE /_fake/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.Disarm()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_fake/tokens/revoke", func(w http.ResponseWriter, r *http.Request) {
		s.RevokeTokens(r.URL.Query().Get("client"))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_fake/out-of-band", accept(s.OutOfBand))
	mux.HandleFunc("POST /_fake/claims", s.serveClaim)
	mux.HandleFunc("POST /_fake/leakcheck", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, append([]string{},
			s.LeakCheck(r.URL.Query().Get("client"), r.URL.Query()["except"]...)...))
	})
	mux.HandleFunc("POST /_fake/advance", func(w http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err != nil || by < 0 {
			writeJSON(w, http.StatusBadRequest, object{"message": "by: want a duration such as 30s"})
			return
		}
		s.Advance(by)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_fake/restart", func(w http.ResponseWriter, r *http.Request) {
		s.Restart(r.URL.Query().Get("state") != "lose")
		w.WriteHeader(http.StatusNoContent)
	})
}

// accept decodes a body and hands it to a method whose error is the client's fault.
func accept[T any](do func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var value T
		if !readControl(w, r, &value) {
			return
		}
		if err := do(value); err != nil {
			writeJSON(w, http.StatusBadRequest, object{"message": err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func readControl(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		writeJSON(w, http.StatusBadRequest, object{"message": err.Error()})
		return false
	}
	return true
}

func (s *Sim) serveClaim(w http.ResponseWriter, r *http.Request) {
	var claim Claim
	if !readControl(w, r, &claim) {
		return
	}
	falsehoods, err := s.Claim(claim)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, object{"message": err.Error()})
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
	state := State{Blocks: []map[string]any{}, Networks: []map[string]any{}, Servers: []map[string]any{}}
	a := s.accounts[accountID]
	if a == nil {
		return state
	}
	for _, b := range inOrder(a.blocks) {
		state.Blocks = append(state.Blocks, s.blockView(a, b))
	}
	for _, n := range inOrder(a.networks) {
		state.Networks = append(state.Networks, s.networkView(a, n))
	}
	for _, srv := range inOrder(a.servers) {
		state.Servers = append(state.Servers, s.serverView(a, srv))
	}
	return state
}
