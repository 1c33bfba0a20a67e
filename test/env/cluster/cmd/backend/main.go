// Command backend is the workload behind the Services of the lab: a server for HTTP and UDP that says where it runs,
// and from which address it was asked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

func main() { command.Main(run) }

func run(ctx context.Context) error {
	listen := flag.String("listen", ":8080", "addresses to serve HTTP on, separated by commas")
	udp := flag.String("udp", "", "addresses to answer datagrams on, separated by commas")
	name := flag.String("name", "", "what to say")
	flag.Parse()
	group, ctx := errgroup.WithContext(ctx)
	for _, address := range split(*listen) {
		group.Go(func() error { return serve(ctx, address, *name) })
	}
	for _, address := range split(*udp) {
		group.Go(func() error { return echo(ctx, address, *name) })
	}
	return group.Wait()
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// testimony contains the server, the client and the port: "srv-a 198.51.100.10 8080".
func testimony(name, client string, local net.Addr) string {
	host, _, err := net.SplitHostPort(client)
	if err != nil {
		host = client
	}
	_, port, err := net.SplitHostPort(local.String())
	if err != nil {
		port = local.String()
	}
	return name + " " + host + " " + port + "\n"
}

func serve(ctx context.Context, address, name string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "hello from %s\n", name) })
	mux.HandleFunc("/asked", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, testimony(name, r.RemoteAddr, listener.Addr()))
	})
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: mux}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// echo answers every datagram with a testimony, until the context ends.
func echo(ctx context.Context, address, name string) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	buffer := make([]byte, 1500)
	for {
		_, from, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("answer datagrams: %w", err)
		}
		_, _ = conn.WriteTo([]byte(testimony(name, from.String(), conn.LocalAddr())), from) // who asked may have gone
	}
}
