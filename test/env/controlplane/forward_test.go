package controlplane

import (
	"io"
	"net"
	"strconv"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// forward forwards TCP from a port on 127.0.0.2 to a port on 127.0.0.1, as the network lab does from an address
// of its own, and returns the former.
func forward(t *testing.T, to int) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go join(in, net.JoinHostPort("127.0.0.1", strconv.Itoa(to)))
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// join copies both ways until one side closes.
func join(in net.Conn, to string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

func selfReview() *authenticationv1.SelfSubjectReview { return &authenticationv1.SelfSubjectReview{} }
