package pnap

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func empty(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, []any{}) }

//proves:known-bugs/token-renewal
func TestOneTokenServesAllAPIs(t *testing.T) {
	s := newService(t, empty)
	client := clientOf(t, s)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := client.Servers(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := client.Blocks(t.Context(), map[string]string{"usage": "x"}); err != nil {
				t.Error(err)
			}
			if _, err := client.TagAssignments(t.Context(), "usage"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s.issued != 1 {
		t.Errorf("%d tokens were requested, want 1", s.issued)
	}
	if want := "bmc bmc.read tags tags.read"; s.scopes[0] != want {
		t.Errorf("scopes %q, want %q", s.scopes[0], want)
	}
}

//proves:known-bugs/token-renewal
func TestTokenIsRenewedBeforeItEnds(t *testing.T) {
	s := newService(t, empty)
	now := time.Now()
	client := clientOf(t, s, func(c *Config) { c.Now = func() time.Time { return now } })
	for _, step := range []struct {
		after  time.Duration
		tokens int
	}{{0, 1}, {14 * time.Minute, 1}, {14*time.Minute + 31*time.Second, 2}} {
		at := now
		now = now.Add(step.after)
		if _, err := client.Servers(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = at
		if s.issued != step.tokens {
			t.Errorf("after %v: %d tokens, want %d", step.after, s.issued, step.tokens)
		}
	}
}

func TestUsefulLife(t *testing.T) {
	for lifetime, want := range map[time.Duration]time.Duration{
		15 * time.Minute: 14*time.Minute + 30*time.Second,
		4 * time.Second:  3 * time.Second,
		0:                assumedLifetime - refreshMargin,
	} {
		if got := usefulLife(lifetime); got != want {
			t.Errorf("usefulLife(%v) = %v, want %v", lifetime, got, want)
		}
	}
}

// A token that was revoked before its expiry causes one rejected request, and the complete body is sent again.
//
//proves:known-bugs/token-renewal
func TestRevokedTokenIsReplacedOnce(t *testing.T) {
	var bodies []string
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		raw := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(raw) // a short body shows in the comparison
		bodies = append(bodies, string(raw))
		answer(w, http.StatusCreated, map[string]any{"id": "b1", "status": "creating"})
	})
	client := clientOf(t, s)
	for range 2 {
		if _, err := client.BuyBlock(t.Context(), BlockRequest{Location: "ASH", Size: "/29"}); err != nil {
			t.Fatal(err)
		}
		s.revokeAll()
	}
	if len(bodies) != 2 || bodies[0] != bodies[1] || !strings.Contains(bodies[1], `"/29"`) {
		t.Errorf("bodies %q, want the same order twice", bodies)
	}
	if s.issued != 2 || s.calls.Load() != 3 {
		t.Errorf("%d tokens and %d requests, want 2 and 3", s.issued, s.calls.Load())
	}
}

func TestTokensThatAreNeverAccepted(t *testing.T) {
	s := newService(t, empty)
	s.token = func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"access_token": "unknown-token", "expires_in": 900})
	}
	client := clientOf(t, s)
	_, err := client.Servers(t.Context())
	if !IsRefused(err) || IsInaccessible(err) || s.calls.Load() != 2 {
		t.Errorf("got %v after %d requests, want a rejection after 2", err, s.calls.Load())
	}
	if strings.Contains(err.Error(), "unknown-token") {
		t.Errorf("the error contains the token: %v", err)
	}
}

func TestFewerScopes(t *testing.T) {
	s := newService(t, empty)
	inner := s.serveTokenFor
	s.token = func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("scope") != "" {
			answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_scope"})
			return
		}
		inner(w)
	}
	if _, err := clientOf(t, s).Servers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *service) serveTokenFor(w http.ResponseWriter) {
	s.valid["Bearer tok-all"] = true
	answer(w, http.StatusOK, map[string]any{"access_token": "tok-all", "expires_in": 900})
}

//proves:known-bugs/changed-credentials
func TestChangedCredentials(t *testing.T) {
	s := newService(t, empty)
	secret := testSecret
	failure := error(nil)
	client := clientOf(t, s, func(c *Config) {
		c.Credentials = func() (string, string, error) { return testID, secret, failure }
	})
	ask := func(wantTokens int) {
		t.Helper()
		if _, err := client.Servers(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.issued != wantTokens {
			t.Errorf("%d tokens, want %d", s.issued, wantTokens)
		}
	}
	ask(1)
	failure = errors.New("file is being replaced")
	ask(1)
	failure = nil
	secret = "another-secret"
	s.secret = "another-secret"
	ask(2)
}

//proves:known-bugs/token-forbidden
func TestTokenFailuresAreNoAnswersOfTheAPI(t *testing.T) {
	for name, token := range map[string]http.HandlerFunc{
		"403":      raw(403, "application/json", `{"error":"access_denied"}`),
		"404":      raw(404, "text/html", "<html>"),
		"409":      raw(409, "application/json", `{}`),
		"500":      raw(500, "application/json", `{}`),
		"no token": raw(200, "application/json", `{}`),
		"reset":    drop(0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, empty)
			s.token = token
			_, err := clientOf(t, s).Server(t.Context(), "s1")
			if want := (classification{Refused: true}); classificationOf(err) != want {
				t.Errorf("%v: got %+v, want %+v", err, classificationOf(err), want)
			}
		})
	}
}

// A secret that phoenixNAP refuses is reported for as long as it is configured: the token of the earlier secret, which
// is valid for minutes, must not hide it from who has just replaced the secret.
//
//proves:known-bugs/changed-credentials
func TestARefusedSecretStaysRefused(t *testing.T) {
	s := newService(t, empty)
	secret := testSecret
	client := clientOf(t, s, func(c *Config) {
		c.Credentials = func() (string, string, error) { return testID, secret, nil }
	})
	if _, err := client.Servers(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret = "misspelt"
	for range 3 {
		if _, err := client.Servers(t.Context()); !IsUnauthenticated(err) {
			t.Errorf("with a refused secret: %v", err)
		}
	}
	secret = testSecret
	if _, err := client.Servers(t.Context()); err != nil {
		t.Errorf("with the first secret again: %v", err)
	}
}

// Whatever the failure, an error must not contain the secret or a token.
//
//proves:known-bugs/secrets-in-events
func TestNoSecretInErrors(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusBadRequest, map[string]any{
			"message":          "you sent " + r.Header.Get("Authorization") + " and " + testSecret,
			"validationErrors": []string{r.Header.Get("Authorization")},
		})
	}
	echoToken := func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusBadRequest, map[string]any{"error": r.FormValue("client_secret"),
			"error_description": r.Form.Encode()})
	}
	for name, change := range map[string]func(*service){
		"API echoes":            func(*service) {},
		"token endpoint echoes": func(s *service) { s.token = echoToken },
		"wrong secret":          func(s *service) { s.secret = "other" },
		"nothing listens":       func(s *service) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, echo)
			change(s)
			_, err := clientOf(t, s).Servers(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, secret := range []string{testSecret, "tok-b"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q is part of: %v", secret, err)
				}
			}
		})
	}
}

func TestNewRefusesBadURLsWithoutRepeatingThem(t *testing.T) {
	for _, url := range []string{"ftp://x", "https://user:hunter2@host", "://", "https://"} {
		_, err := New(Config{BaseURL: url, Credentials: func() (string, string, error) { return "", "", nil }})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("New(%q): got %v", url, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New without credentials: no error")
	}
}
