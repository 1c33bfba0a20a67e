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
	// maxAnswer bounds an answer in bytes, its head and its body each: kube-proxy's have less than 500.
	maxAnswer = 1 << 16
	// maxIdle closes the connections to the ports of Services that are gone.
	maxIdle = time.Minute
)

// transport sends probes. Connections stay open: to open one for each probe would cost more than the answer and use up
// the port numbers of the machine.
type transport struct{ http.Client }

// newTransport returns a transport that bounds one attempt by timeout; after one that took so long there is no other.
func newTransport(timeout time.Duration) *transport {
	return &transport{http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        maxIdle,
			MaxResponseHeaderBytes: maxAnswer,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// probe asks kube-proxy for one port, at the first of the addresses that answers.
func (t *transport) probe(ctx context.Context, addresses []netip.Addr, port int32) (ready bool, err error) {
	var errs []error
	for _, address := range addresses {
		at := netip.AddrPortFrom(address, uint16(port)) //nolint:gosec // a TCP port
		ready, err := t.ask(ctx, at)
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

func (t *transport) ask(ctx context.Context, at netip.AddrPort) (ready bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/healthz", nil)
	if err != nil {
		return false, err
	}
	response, err := t.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return false, fmt.Errorf("the answer is %q: want 200 or 503", response.Status)
	}
	// The status is all of the answer; the rest only has to be read before the next one.
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode == http.StatusOK, err
}
