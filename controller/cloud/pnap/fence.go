package pnap

import (
	"context"
	"net"
	"net/http"
)

// fencedTransport calls the fence before it sends a change. Changes have separate connections, which call the fence
// again before every write: a connection may have to be established first, and the process can be suspended for any
// time in the meantime.
type fencedTransport struct {
	fence          func() error
	reads, changes http.RoundTripper
}

// fenced returns the transport that sends requests; fence may be nil.
func fenced(fence func() error) http.RoundTripper {
	reads := baseTransport()
	if fence == nil {
		return reads
	}
	changes := baseTransport()
	if transport, ok := changes.(*http.Transport); ok {
		fenceWrites(transport, fence)
	}
	return &fencedTransport{fence: fence, reads: reads, changes: changes}
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !changes(request.Method) {
		return t.reads.RoundTrip(request)
	}
	if err := t.fence(); err != nil {
		closeBody(request)
		return nil, &unsentError{error: err}
	}
	return t.changes.RoundTrip(request)
}

// fenceWrites makes the connections of a transport call the fence.
func fenceWrites(transport *http.Transport, fence func() error) {
	dial := transport.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &fencedConnection{Conn: connection, fence: fence}, nil
	}
}

// fencedConnection rejects writes when the fence is closed. Such a request does not count as not sent: the rejected
// write may be the rest of a request, or the answer to a ping while another request waits for its answer (HTTP/2).
type fencedConnection struct {
	net.Conn
	fence func() error
}

// Write implements net.Conn.
func (c *fencedConnection) Write(b []byte) (int, error) {
	if err := c.fence(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
