package pnap

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	testID     = "client-7d1f"
	testSecret = "s3cr3t-9f0e7a"
)

// service is an HTTP service with a token endpoint that records the tokens it issued; api answers the rest.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	secret   string
	valid    map[string]bool
	issued   int
	lifetime int // seconds
	scopes   []string
	token    http.HandlerFunc // replaces the token endpoint when set
	calls    atomic.Int32
}

func newService(t *testing.T, api http.HandlerFunc) *service {
	t.Helper()
	s := &service{secret: testSecret, valid: map[string]bool{}, lifetime: 900}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+TokenPath, s.serveToken)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		s.mu.Lock()
		known := s.valid[r.Header.Get("Authorization")]
		s.mu.Unlock()
		if !known {
			answer(w, http.StatusUnauthorized, map[string]any{"message": "token " + r.Header.Get("Authorization") +
				" is unknown"})
			return
		}
		api(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *service) serveToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != nil {
		s.token(w, r)
		return
	}
	if err := r.ParseForm(); err != nil || r.PostForm.Get("client_secret") != s.secret {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client",
			"error_description": "sent: " + r.PostForm.Encode()})
		return
	}
	s.scopes = append(s.scopes, r.PostForm.Get("scope"))
	s.issued++
	token := "tok-" + string(rune('a'+s.issued))
	s.valid["Bearer "+token] = true
	answer(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": s.lifetime})
}

func (s *service) revokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.valid = map[string]bool{}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// clientOf returns a client of the service; change may alter its configuration.
func clientOf(t *testing.T, s *service, change ...func(*Config)) *Client {
	t.Helper()
	config := Config{
		BaseURL: s.URL, TokenURL: s.URL + TokenPath, HTTPTimeout: time.Minute,
		Credentials: func() (string, string, error) { return testID, testSecret, nil },
	}
	for _, each := range change {
		each(&config)
	}
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
