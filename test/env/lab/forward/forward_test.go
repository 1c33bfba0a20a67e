package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// start runs a forwarder and returns its address and what ends it.
func start(t *testing.T, target string) (address string, end func()) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Forwarder{Listener: l, Target: target}.Run(ctx) }()
	return l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil at the end of its context", err)
		}
	}
}

func connect(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("connection is a %T", conn)
	}
	return tcp
}

// TestBothDirectionsAndHalfClose sends until its end and only then gets the answer, as an HTTP/1.0 client may.
func TestBothDirectionsAndHalfClose(t *testing.T) {
	target := listen(t)
	go func() {
		conn, err := target.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		data, err := io.ReadAll(conn)
		if err == nil {
			_, _ = conn.Write(bytes.ToUpper(data))
		}
	}()
	address, end := start(t, target.Addr().String())
	defer end()
	conn := connect(t, address)
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "HELLO" {
		t.Errorf("answer %q, %v, want HELLO", got, err)
	}
}

func TestATargetThatIsNotThereHangsUp(t *testing.T) {
	gone := listen(t)
	_ = gone.Close()
	address, end := start(t, gone.Addr().String())
	defer end()
	conn := connect(t, address)
	if got, err := io.ReadAll(conn); len(got) != 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read %q, %v, want the end of the connection", got, err)
	}
}

func TestTheEndOfTheContextEndsConnections(t *testing.T) {
	target := listen(t)
	address, end := start(t, target.Addr().String())
	conn := connect(t, address)
	far, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	end()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the forwarder")
	}
}
