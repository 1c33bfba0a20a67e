package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func onLoopback(t *testing.T) net.Listener {
	t.Helper()
	first, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// answers reports whether a server answers on the port of a listener at another address.
func answers(ctx context.Context, l net.Listener, host string) bool {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port), nil)
	if err != nil {
		return false
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return err == nil && string(text) == "here"
}

// TestOnPrivate serves on addresses of loopback in place of private ones; the last one comes late.
func TestOnPrivate(t *testing.T) {
	var looks atomic.Int32
	first := onLoopback(t)
	served := onPrivate(t.Context(), first, time.Millisecond, func() ([]netip.Addr, error) {
		all := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
		if looks.Add(1) == 1 {
			return all, errors.New("one interface went away")
		}
		return append(all, netip.MustParseAddr("127.0.0.3")), nil
	})
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(served) }()
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) { return answers(ctx, served, host), nil }); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if answers(t.Context(), served, "127.0.0.4") {
		t.Error("it serves on an address that nothing named")
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		if answers(t.Context(), served, host) {
			t.Errorf("%s answers after the end", host)
		}
	}
}

// TestOnPrivateOfThisMachine: whatever addresses the machine has, none that is public is opened.
func TestOnPrivateOfThisMachine(t *testing.T) {
	all, err := privateAddresses()
	if err != nil {
		t.Fatal(err)
	}
	if public := slices.DeleteFunc(all, contract.IsPrivate); len(public) > 0 {
		t.Errorf("%v are no private addresses", public)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := OnPrivate(ctx, onLoopback(t))
	cancel()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end it accepts, or says %v", err)
	}
}

// TestAllAddressesAreOpen: a user who asks for all addresses has no use for more.
func TestAllAddressesAreOpen(t *testing.T) {
	first, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if got := OnPrivate(t.Context(), first); got != first {
		t.Errorf("it adds to %s", first.Addr())
	}
}
