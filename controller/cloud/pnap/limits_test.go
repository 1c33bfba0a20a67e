package pnap

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// zeros is an answer without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (zeros) Close() error { return nil }

// An answer without end is cut off.
func TestAnAnswerWithoutEnd(t *testing.T) {
	tr := newTransport(withDefaults(Config{}), &tokenSource{
		Config: Config{Now: time.Now, Credentials: func() (string, string, error) { return "", "", nil }},
		token:  "t", renewAt: time.Now().Add(time.Hour), backoff: newBackoff(time.Now),
	}, &condition{now: time.Now})
	tr.base = roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: zeros{}, Header: http.Header{}}, nil
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://pnap.example/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := tr.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxBody+1))
	if tooLarge := new(http.MaxBytesError); !errors.As(err, &tooLarge) || read != maxBody {
		t.Errorf("read %d bytes, %v; want %d and an error", read, err, maxBody)
	}
}

// The answer to a request for blocks with certain tags is filtered again: a block needs each of them, with its value.
func TestBlocksAreFilteredAgain(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		tagged := func(id string, tags ...string) map[string]any {
			list := []any{}
			for _, tag := range tags {
				name, value, _ := strings.Cut(tag, "=")
				list = append(list, map[string]any{"name": name, "value": value})
			}
			return map[string]any{"id": id, "tags": list}
		}
		answer(w, http.StatusOK, []any{tagged("b1", "a=1", "b=2"), tagged("b2", "a=1", "b=3"), tagged("b3", "a=1"),
			tagged("b4")})
	})
	blocks, err := clientOf(t, s).Blocks(t.Context(), map[string]string{"a": "1", "b": "2"})
	if err != nil || len(blocks) != 1 || blocks[0].ID != "b1" {
		t.Errorf("got %v, %v; want b1 only", blocks, err)
	}
}

// Of many requests that were answered 401, only those with the current token drop it. The previous token is still
// removed from texts: an error may contain it.
func TestOnlyTheCurrentTokenIsDropped(t *testing.T) {
	s := &tokenSource{token: "tok-new", previous: "tok-old", secret: "secret"}
	s.invalidate("tok-old")
	if s.token != "tok-new" {
		t.Errorf("a request with the old token dropped %q", s.token)
	}
	if got := s.redact("tok-new tok-old secret"); strings.Contains(got, "tok-") || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
	s.invalidate("tok-new")
	if s.token != "" || s.redact("tok-new") != "[redacted]" {
		t.Errorf("kept %q, redacted %q", s.token, s.redact("tok-new"))
	}
}

// A short pause does not end a longer one, and none is longer than ten minutes.
func TestTheLongestPauseCounts(t *testing.T) {
	now := time.Now()
	h := &holdOff{now: func() time.Time { return now }}
	for _, c := range []struct {
		seconds int
		want    time.Duration
	}{
		{60, time.Minute}, {5, time.Minute}, {90, 90 * time.Second},
		{365 * 24 * 3600, longestPause},
	} {
		h.start(http.Header{"Retry-After": {strconv.Itoa(c.seconds)}})
		if got := h.remaining(); got != c.want {
			t.Errorf("Retry-After %d: a pause of %v, want %v", c.seconds, got, c.want)
		}
	}
}
