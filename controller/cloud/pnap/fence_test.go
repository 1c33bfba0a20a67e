package pnap

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errNotLeading = errors.New("not leading")

// gatekeeper is a fence that rejects once it is closed, or after a number of calls.
type gatekeeper struct {
	closed atomic.Bool
	asked  atomic.Int32
	most   int32 // calls that it allows; 0 for all
}

func (g *gatekeeper) mayChange() error {
	if g.closed.Load() || g.asked.Add(1) > g.most && g.most > 0 {
		return errNotLeading
	}
	return nil
}

// The fence is called after everything that a change may wait for: nothing is sent when it was closed in the meantime,
// and the error reports this.
func TestClosedFenceStopsAChange(t *testing.T) {
	for name, c := range map[string]struct {
		closeAt   string // the request during which the fence closes
		status    int    // of the first answer to a change
		arrive    int32  // changes that arrive
		unsent    bool
		wantFails bool
	}{
		"open":                     {status: http.StatusOK, arrive: 1},
		"closed before":            {closeAt: "start", arrive: 0, unsent: true, wantFails: true},
		"while a token is fetched": {closeAt: TokenPath, arrive: 0, unsent: true, wantFails: true},
		"while the token is found stale": {closeAt: "/ips/v1/ip-blocks/b1", status: http.StatusUnauthorized, arrive: 1,
			wantFails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var fence gatekeeper
			var arrived atomic.Int32
			fence.closed.Store(c.closeAt == "start")
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == c.closeAt {
					fence.closed.Store(true)
				}
				if r.URL.Path == TokenPath {
					answer(w, http.StatusOK, map[string]any{"access_token": "tok-x", "token_type": "Bearer",
						"expires_in": 900})
					return
				}
				if changes(r.Method) {
					arrived.Add(1)
				}
				answer(w, c.status, map[string]any{"result": "deleted", "ipBlockId": "b1"})
			}))
			defer server.Close()
			client := clientOf(t, &service{Server: server}, func(config *Config) { config.Fence = fence.mayChange })
			err := client.DeleteBlock(t.Context(), "b1")
			if (err != nil) != c.wantFails || arrived.Load() != c.arrive {
				t.Errorf("%v after %d changes, want %d", err, arrived.Load(), c.arrive)
			}
			if c.unsent && (!errors.Is(err, errNotLeading) || !IsRefused(err) || IsUnanswered(err) ||
				err.Error() != "delete IP block b1: not sent: not leading") {
				t.Errorf("%v is not known to be unsent", err)
			}
			if client.Health().Failing() && c.status != http.StatusUnauthorized {
				t.Errorf("a local rejection counts as a failure of the API: %+v", client.Health())
			}
		})
	}
}

// A closed fence does not prevent reads.
func TestClosedFenceLetsReadsPass(t *testing.T) {
	var fence gatekeeper
	fence.closed.Store(true)
	s := newService(t, empty)
	client := clientOf(t, s, func(config *Config) { config.Fence = fence.mayChange })
	if _, err := client.Servers(t.Context()); err != nil {
		t.Error(err)
	}
}

// A change that waits for the rate limit while the deadline passes is not sent.
func TestFenceAfterTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived int
		network := roundTrip(func(*http.Request) (*http.Response, error) {
			arrived++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
		})
		end := time.Now().Add(time.Second)
		fence := func() error {
			if time.Now().Before(end) {
				return nil
			}
			return errNotLeading
		}
		tr := newTransport(withDefaults(Config{RequestsPerSecond: 1}), &tokenSource{
			Config: Config{Now: time.Now, Credentials: func() (string, string, error) { return "", "", nil }},
			token:  "t", renewAt: time.Now().Add(time.Hour), backoff: newBackoff(time.Now),
		}, &condition{now: time.Now})
		tr.base = &fencedTransport{fence: fence, reads: network, changes: network}
		for i, sent := range []bool{true, true, false} { // two at once, the third after a second
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://pnap.example/x",
				strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := tr.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if (err == nil) != sent || !sent && !errors.Is(err, ErrUnsent) {
				t.Errorf("change %d: %v, want it sent %t", i, err, sent)
			}
		}
		if arrived != 2 {
			t.Errorf("%d changes arrived, want 2", arrived)
		}
	})
}

// A process can be suspended between the call of the fence and the request, as while the connection is established: the
// connection calls the fence again, for any protocol, and whether it is new or was used before.
//
//proves:known-bugs/deposed-leader
func TestConnectionsAskTheFence(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1.1":     (*httptest.Server).Start,
		"HTTP/1.1 TLS": (*httptest.Server).StartTLS,
		"HTTP/2":       func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		for _, used := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", new", true: ", used before"}[used], func(t *testing.T) {
				var fence gatekeeper
				var arrived atomic.Int32
				var protocol atomic.Int32
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					protocol.Store(int32(r.ProtoMajor))
					arrived.Add(1)
				}))
				server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that the fence ends
				start(server)
				defer server.Close()
				transport := transportTo(t, server)
				fenceWrites(transport, fence.mayChange)
				tr := &fencedTransport{fence: fence.mayChange, reads: http.DefaultTransport, changes: transport}
				if used {
					if err := change(t.Context(), t, tr, server.URL); err != nil ||
						strings.HasPrefix(name, "HTTP/2") != (protocol.Load() == 2) {
						t.Fatalf("with an open fence: %v, HTTP/%d", err, protocol.Load())
					}
				}
				before := arrived.Load()
				fence.most = fence.asked.Load() + 1 // the one before the request
				err := change(t.Context(), t, tr, server.URL)
				if !errors.Is(err, errNotLeading) || errors.Is(err, ErrUnsent) || arrived.Load() != before {
					t.Errorf("%v, %d changes arrived", err, arrived.Load()-before)
				}
			})
		}
	}
}

// The connection of a rejected write may be closed before http.Transport returns why.
func TestTheFenceIsTheReason(t *testing.T) {
	for name, tc := range map[string]struct {
		most int32 // calls of the fence before it is closed
		err  error
		want string
	}{
		"closed meanwhile":  {most: 1, err: net.ErrClosed, want: "not leading: use of closed network connection"},
		"said by the write": {most: 1, err: &rejectedError{errNotLeading}, want: "not leading"},
		"still open":        {most: 2, err: net.ErrClosed, want: "use of closed network connection"},
	} {
		t.Run(name, func(t *testing.T) {
			fence := gatekeeper{most: tc.most}
			network := roundTrip(func(*http.Request) (*http.Response, error) { return nil, tc.err })
			tr := &fencedTransport{fence: fence.mayChange, reads: network, changes: network}
			err := change(t.Context(), t, tr, "http://pnap.example")
			if err == nil || err.Error() != tc.want || !errors.Is(err, tc.err) || errors.Is(err, ErrUnsent) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

// A change that only its connection rejects may have been sent in part: its outcome counts as unknown.
func TestAChangeThatIsRefusedOnItsWayIsUnanswered(t *testing.T) {
	fence := gatekeeper{most: 1}
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s arrived", r.Method, r.URL) })
	client := clientOf(t, s, func(config *Config) { config.Fence = fence.mayChange })
	if err := client.DeleteBlock(t.Context(), "b1"); !errors.Is(err, errNotLeading) || !IsUnanswered(err) {
		t.Errorf("got %v", err)
	}
}

// transportTo returns a transport that trusts the server.
func transportTo(t *testing.T, server *httptest.Server) *http.Transport {
	t.Helper()
	if server.TLS == nil {
		return &http.Transport{}
	}
	trusting, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatalf("the server's client has a %T", server.Client().Transport)
	}
	return &http.Transport{TLSClientConfig: trusting.TLSClientConfig.Clone(), ForceAttemptHTTP2: true}
}

func change(ctx context.Context, t *testing.T, to http.RoundTripper, url string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := to.RoundTrip(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}
