package localhealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

const (
	// maxAnswer bounds the head and the body of an answer, in bytes each: kube-proxy's have less than 500.
	maxAnswer = 1 << 16
	// keepIdle is how long a connection is kept that no probe uses: longer than the time between two probes of a port.
	keepIdle = time.Minute
)

// client probes over one connection for each port, which stays open: to open one for each probe would cost more than
// the answer and use up the port numbers of the machine.
type client struct {
	// timeout bounds one attempt; after one that took so long there is no other.
	timeout   time.Duration
	transport *http.Transport
}

func newClient(timeout time.Duration) *client {
	return &client{timeout: timeout, transport: &http.Transport{
		MaxIdleConnsPerHost: 1, IdleConnTimeout: keepIdle, MaxResponseHeaderBytes: maxAnswer, DisableCompression: true,
		ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10,
	}}
}

// probe asks kube-proxy for one port, at the first of the addresses that answers.
func (c *client) probe(ctx context.Context, addresses []netip.Addr, port int32) (ready bool, err error) {
	var errs []error
	for _, address := range addresses {
		at := netip.AddrPortFrom(address, uint16(port)) //nolint:gosec // a TCP port
		ready, err := c.ask(ctx, at)
		if err == nil {
			return ready, nil
		}
		errs = append(errs, fmt.Errorf("ask kube-proxy at %s: %w", at, err))
		// Where kube-proxy does not listen, the answer is a refusal. One that hangs would hang at every address.
		if isTimeout(err) {
			break
		}
	}
	return false, errors.Join(errs...)
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// ask asks kube-proxy for the state of one Service; it looks at no header.
func (c *client) ask(ctx context.Context, at netip.AddrPort) (ready bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/healthz", nil)
	if err != nil {
		return false, err
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return false, fmt.Errorf("the answer is %q: want 200 or 503", response.Status)
	}
	// The status is all of the answer; the rest only has to be read before the connection is used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode == http.StatusOK, nil
}
