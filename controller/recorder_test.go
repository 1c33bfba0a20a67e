package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// change is a request that changes something, as it came by.
type change struct {
	at           time.Time
	method, path string
	body         string
	lease        *coordinationv1.Lease // nil unless it writes one
}

func (c change) String() string { return fmt.Sprintf("%s %s", c.method, c.path) }

// recorder is a proxy before an API that keeps the changes which one process asks for.
type recorder struct {
	url       string
	authority []byte // of its certificate, in PEM
	mu        sync.Mutex
	changes   []change
	trap      func(change) bool // nil when none is set
	sprung    func()
}

// before returns a proxy before the given API, reached through transport.
func before(t *testing.T, api string, transport http.RoundTripper) *recorder {
	t.Helper()
	target, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: transport,
		// watches
		FlushInterval: -1,
		// clients go away
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if sprung := r.record(request); sprung != nil {
			sprung()
		}
		proxy.ServeHTTP(w, request)
	}))
	if target.Scheme == "https" {
		server.StartTLS() // a client shows its token to nothing less
		r.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		server.CloseClientConnections() // watches have no end
		server.Close()
	})
	r.url = server.URL
	return r
}

// beforeKubernetes returns a proxy before the test's API server.
func beforeKubernetes(t *testing.T) *recorder {
	t.Helper()
	config := rest.AnonymousClientConfig(plane.Config())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return before(t, config.Host, transport)
}

// set has then run before the first request goes on, of those that only read too, for which trap returns true.
func (r *recorder) set(trap func(change) bool, then func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = trap
	r.sprung = then
}

// record keeps a change and returns what to do before the request goes on; nil for nothing.
func (r *recorder) record(request *http.Request) (sprung func()) {
	c := change{at: time.Now(), method: request.Method, path: request.URL.Path}
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		c.read(request)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.method != http.MethodGet && c.method != http.MethodHead {
		r.changes = append(r.changes, c)
	}
	if r.trap == nil || !r.trap(c) {
		return nil
	}
	r.trap = nil
	return r.sprung
}

// read keeps the body of a request, which can be read again afterwards.
func (c *change) read(request *http.Request) {
	raw, err := io.ReadAll(request.Body)
	if err == nil {
		request.Body = io.NopCloser(bytes.NewReader(raw))
	}
	c.body = string(raw)
	if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil); err == nil {
		c.lease, _ = decoded.(*coordinationv1.Lease)
	}
}

// all returns what came by so far, but for requests for tokens and reviews of access.
func (r *recorder) all() []change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []change
	for _, c := range r.changes {
		switch c.path {
		case "/auth/realms/BMC/protocol/openid-connect/token", "/apis/authentication.k8s.io/v1/tokenreviews",
			"/apis/authorization.k8s.io/v1/subjectaccessreviews":
		default:
			kept = append(kept, c)
		}
	}
	return kept
}

// released returns when the process gave the Lease back.
func (r *recorder) released() (time.Time, bool) {
	for _, c := range r.all() {
		if c.lease != nil && c.lease.Spec.HolderIdentity != nil && *c.lease.Spec.HolderIdentity == "" {
			return c.at, true
		}
	}
	return time.Time{}, false
}

// after returns the changes that came by after a time.
func (r *recorder) after(at time.Time) []change {
	var late []change
	for _, c := range r.all() {
		if c.at.After(at) {
			late = append(late, c)
		}
	}
	return late
}
