package localhealth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// maxAnswer bounds an answer in bytes: kube-proxy's have less than 500.
const maxAnswer = 1 << 16

// request asks for the state of the Service; kube-proxy looks at no header.
const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: phoenixnap-agent\r\n\r\n"

// transport probes over one connection for each port, which stays open: to open one for each probe would cost more than
// the answer and use up the port numbers of the machine. http.Transport does the same with two goroutines for each and
// takes about 1.4 times as long on the processor, which is more than make bench allows.
type transport struct {
	// timeout bounds one attempt; after one that took so long there is no other.
	timeout time.Duration

	mu   sync.Mutex
	open map[int32]net.Conn
}

func newTransport(timeout time.Duration) *transport {
	return &transport{timeout: timeout, open: map[int32]net.Conn{}}
}

// buffers are those for reading answers; only as many are in use as there are probes at a time.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1024) }}

// probe asks kube-proxy for one port, at the first of the addresses that answers.
func (t *transport) probe(ctx context.Context, addresses []netip.Addr, port int32) (ready bool, err error) {
	if conn := t.take(port); conn != nil {
		// The other side may have closed it since, as when kube-proxy was restarted.
		if ready, err = t.ask(conn, port); err == nil || isTimeout(err) {
			return ready, err
		}
	}
	dialer := net.Dialer{Timeout: t.timeout}
	var errs []error
	for _, address := range addresses {
		at := netip.AddrPortFrom(address, uint16(port)) //nolint:gosec // a TCP port
		conn, err := dialer.DialContext(ctx, "tcp", at.String())
		if err == nil {
			ready, err = t.ask(conn, port)
		}
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

// ask sends a request and reads the answer, and keeps the connection if it can be used again.
func (t *transport) ask(conn net.Conn, port int32) (ready bool, err error) {
	reusable := false
	defer func() {
		if reusable {
			t.put(port, conn)
		} else {
			_ = conn.Close()
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(t.timeout)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return false, err
	}
	buffer, _ := buffers.Get().(*bufio.Reader)
	buffer.Reset(io.LimitReader(conn, maxAnswer))
	defer func() {
		buffer.Reset(nil)
		buffers.Put(buffer)
	}()
	response, err := http.ReadResponse(buffer, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return false, fmt.Errorf("the answer is %q: want 200 or 503", response.Status)
	}
	// The status is all of the answer; the rest only has to be read before the next one.
	_, err = io.Copy(io.Discard, response.Body)
	reusable = err == nil && !response.Close && buffer.Buffered() == 0
	return response.StatusCode == http.StatusOK, nil
}

func (t *transport) take(port int32) net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	conn := t.open[port]
	delete(t.open, port)
	return conn
}

func (t *transport) put(port int32, conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[port] = conn
}

// keep closes the connections to other ports than these.
func (t *transport) keep(ports []int32) {
	wanted := map[int32]bool{}
	for _, port := range ports {
		wanted[port] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for port, conn := range t.open {
		if !wanted[port] {
			_ = conn.Close()
			delete(t.open, port)
		}
	}
}
