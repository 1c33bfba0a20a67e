package pnap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// classification is the result of all predicates for an error.
type classification struct{ Inaccessible, Conflict, Refused, Unanswered bool }

func classificationOf(err error) classification {
	return classification{IsInaccessible(err), IsConflict(err), IsRefused(err), IsUnanswered(err)}
}

func raw(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body) // the client may have disconnected
	}
}

// drop closes the connection after the given part of an incomplete answer.
func drop(status int, part string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if part != "" {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, part) // the client may have disconnected
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
		}
		panic(http.ErrAbortHandler)
	}
}

//proves:known-bugs/nil-answer
//proves:known-bugs/opaque-errors
func TestEveryAnswerIsClassified(t *testing.T) {
	refused := classification{Refused: true}
	unknown := classification{Unanswered: true}
	tests := map[string]struct {
		api  http.HandlerFunc
		want classification
		text string
	}{
		"400": {raw(400, "application/json", `{"message":"bad","validationErrors":["size is wrong"]}`),
			refused, "bad (size is wrong)"},
		"403": {raw(403, "application/json", `{"message":"cannot be accessed"}`),
			classification{Inaccessible: true, Refused: true}, "cannot be accessed"},
		"404": {raw(404, "application/json", `{"message":"none"}`),
			classification{Inaccessible: true, Refused: true}, "404"},
		"406 no capacity": {raw(406, "application/json", `{"message":"no capacity"}`), refused, "no capacity"},
		"408":             {raw(408, "text/plain", ""), unknown, "408"},
		"409": {raw(409, "application/json", `{"message":"busy"}`),
			classification{Conflict: true, Refused: true}, "busy"},
		"422 undocumented": {raw(422, "application/json", `{"message":"odd"}`), refused, "odd"},
		"429":              {raw(429, "application/json", `{}`), refused, "429"},
		"500":              {raw(500, "application/json", `{"message":"oops"}`), unknown, "oops"},
		"502 HTML page":    {raw(502, "text/html", "<html>"), unknown, "502"},
		"500 empty":        {raw(500, "application/json", ""), unknown, "500"},
		"409 as HTML":      {raw(409, "text/html", "<html>"), classification{Conflict: true, Refused: true}, "409"},
		"redirect": {func(w http.ResponseWriter,
			r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, unknown, "302"},
		"connection reset":     {drop(0, ""), unknown, "no answer"},
		"truncated success":    {drop(201, `{"id":`), unknown, "no answer"},
		"truncated rejection":  {drop(409, `{"mess`), classification{Conflict: true, Refused: true}, "409"},
		"success without JSON": {raw(201, "application/json", `{"id":`), unknown, "invalid answer"},
		"success as HTML":      {raw(200, "text/html", `<html>`), unknown, "invalid answer"},
		"success without ID": {raw(201, "application/json", `{"status":"creating"}`), unknown,
			"the property id is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, newService(t, test.api))
			_, err := client.BuyBlock(t.Context(), BlockRequest{Location: "ASH", Size: "/29"})
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, classificationOf(err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			for _, part := range []string{"buy IP block /29 in ASH", test.text} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		})
	}
}

//proves:known-bugs/no-timeout
func TestAnAnswerThatNeverComes(t *testing.T) {
	release := make(chan struct{})
	s := newService(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	client := clientOf(t, s, func(c *Config) { c.HTTPTimeout = 2 * time.Second }) // the token comes in time
	err := client.DeleteBlock(t.Context(), "b1")
	if want := (classification{Unanswered: true}); classificationOf(err) != want {
		t.Errorf("%v: got %+v, want %+v", err, classificationOf(err), want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	patient := clientOf(t, s)
	if err := patient.DeleteBlock(ctx, "b1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded in it", err)
	}
}

//proves:known-bugs/nil-answer
func TestNothingListens(t *testing.T) {
	s := newService(t, nil)
	client := clientOf(t, s)
	s.Close()
	_, err := client.Servers(t.Context())
	if err == nil || IsInaccessible(err) || !strings.Contains(err.Error(), "list servers: not sent") {
		t.Errorf("got %v", err)
	}
}

func TestPredicatesOfForeignErrors(t *testing.T) {
	for _, err := range []error{nil, errors.New("other")} {
		if classificationOf(err) != (classification{}) {
			t.Errorf("%v: got %+v, want nothing", err, classificationOf(err))
		}
	}
	wrapped := fmt.Errorf("look for block: %w", &Error{StatusCode: http.StatusNotFound})
	if !IsInaccessible(wrapped) {
		t.Error("a wrapped 404 is not recognized")
	}
}

// After a 429 no request is sent before the pause is over.
//
//proves:known-bugs/no-pause-after-429
func TestPauseAfter429(t *testing.T) {
	limited := true
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		if limited {
			w.Header().Set("Retry-After", "7")
			answer(w, http.StatusTooManyRequests, map[string]any{"message": "slow down"})
			return
		}
		answer(w, http.StatusOK, []any{})
	})
	now := time.Now()
	client := clientOf(t, s, func(c *Config) { c.Now = func() time.Time { return now } })
	_, err := client.Servers(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.RetryAfter != 7*time.Second {
		t.Fatalf("got %#v, want RetryAfter 7s", err)
	}
	limited = false
	now = now.Add(6 * time.Second)
	_, err = client.Blocks(t.Context(), nil)
	if !errors.As(err, &e) || e.RetryAfter != time.Second || !IsRefused(err) {
		t.Errorf("within the pause: got %v", err)
	}
	if calls := s.calls.Load(); calls != 1 {
		t.Errorf("%d requests reached the API, want 1", calls)
	}
	now = now.Add(2 * time.Second)
	if _, err := client.Servers(t.Context()); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-1": 0, "soon": 0, "99999999999999999999": 0,
		"Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", value, got, want)
		}
	}
}
