package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// request asks by HTTP.
type request struct {
	url    string
	client *http.Client
}

func (r request) ask(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s", resp.Status)
	}
	return string(body), err
}

// datagram asks by one datagram, which is not repeated, and takes the first that comes back for the answer.
type datagram struct {
	address string
	timeout time.Duration
	dial    Dial
}

func (d datagram) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.dial(ctx, "udp", d.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	answer := make([]byte, bodyLimit)
	n, err := conn.Read(answer)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return "", fmt.Errorf("no answer from %s: %w", d.address, err)
	}
	return string(answer[:n]), err
}
