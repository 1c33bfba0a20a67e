//go:build linux

// Command labd holds the network lab. It connects to its caller, says the token that it was given, serves the
// caller's calls on that connection and takes the whole lab away when the connection ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/daemon"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/wire"
)

// files collects the repeated flag --file name=path.
type files map[string]string

func (f files) String() string { return fmt.Sprint(map[string]string(f)) }

// Set is called for each --file.
func (f files) Set(value string) error {
	name, path, ok := strings.Cut(value, "=")
	if !ok {
		return fmt.Errorf("want name=path")
	}
	f[name] = path
	return nil
}

func main() {
	handed := files{}
	caller := flag.String("dial", "", "address (host:port) of the caller")
	logs := flag.String("logs", "", "directory for the logs of programs")
	root := flag.String("root", "", "empty directory on which to build a root of our own that has "+wire.Directory+
		" (needs a mount and a process namespace)")
	flag.Var(handed, "file", "name=path: file of the host that appears in "+wire.Directory+
		" (with --root); may be repeated")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *caller, *logs, *root, handed) })
}

func run(ctx context.Context, caller, logs, root string, handed files) error {
	if root != "" {
		if err := privateRoot(root, handed); err != nil {
			return fmt.Errorf("make a root of our own: %w", err)
		}
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("directory for logs: %w", err)
	}
	dialer := net.Dialer{Timeout: 30 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", caller)
	if err != nil {
		return fmt.Errorf("connect to the caller: %w", err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, os.Getenv(wire.TokenVariable)); err != nil {
		return fmt.Errorf("greet the caller: %w", err)
	}
	if err := os.Unsetenv(wire.TokenVariable); err != nil {
		return err
	}
	return daemon.New(logs).Serve(ctx, conn)
}
