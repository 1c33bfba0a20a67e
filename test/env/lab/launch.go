//go:build linux

package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/machine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// DaemonVariable is an environment variable that names the daemon's binary, so that it is not built.
const DaemonVariable = "PNAP_LABD"

const loopback = "127.0.0.1"

// launch starts the daemon at its place and waits until it has called back.
func launch(ctx context.Context, c Config, listener net.Listener) (*Lab, error) {
	inPlace := false
	if !c.Machine {
		var err error
		if inPlace, err = kernel.InPlace(ctx); err != nil {
			return nil, err
		}
	}
	daemon, err := daemonBinary(ctx)
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	// The lab outlives the context of its start.
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	l := &Lab{InMachine: !inPlace, end: end, ended: make(chan struct{})}
	place := c.inMachine
	if inPlace {
		place = c.inPlace
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(l.hostAddress(), port)
	go func() {
		defer close(l.ended)
		l.err = place(running, daemon, address, token)
	}()
	conn, err := l.accept(ctx, listener, token)
	if err != nil {
		end()
		<-l.ended
		return nil, errors.Join(err, l.err)
	}
	l.client = rpc.NewClient(conn)
	return l, nil
}

func daemonBinary(ctx context.Context) (string, error) {
	if binary := os.Getenv(DaemonVariable); binary != "" {
		return binary, nil
	}
	return tools.Product(ctx, "./test/env/lab/cmd/labd")
}

// hostAddress is this machine's loopback address as the daemon reaches it.
func (l *Lab) hostAddress() string {
	if l.InMachine {
		return guest.HostAddress
	}
	return loopback
}

// inMachine runs the daemon in a virtual machine until that ends.
func (c Config) inMachine(ctx context.Context, daemon, address, token string) error {
	files := map[string]string{"/sbin/labd": daemon}
	for name, source := range c.Files {
		files[path.Join(wire.Directory, name)] = source
	}
	result, err := machine.Run(ctx, machine.Config{
		Command: []string{"/sbin/labd", "--dial", address, "--logs", "/var/log/lab"},
		Env:     []string{wire.TokenVariable + "=" + token},
		Files:   files, Programs: c.Programs,
		Network: true, MemoryMiB: c.MemoryMiB, TimeLimit: c.TimeLimit, Stdout: c.Log, Stderr: c.Log,
	})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("the lab's daemon ended with exit code %d; see its log for the reason", result.ExitCode)
	}
	return err
}

// inPlace runs the daemon in namespaces of this machine until it ends. As the first process of its own process
// namespace it takes everything that it has started with it.
func (c Config) inPlace(ctx context.Context, daemon, address, token string) error {
	if err := kernel.Require(ctx, c.Programs...); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pnap-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the temporary directory belongs to the system from here on
	args := []string{"--dial", address, "--logs", filepath.Join(dir, "logs"), "--root", filepath.Join(dir, "root")}
	for _, sub := range []string{"logs", "root"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	for name, source := range c.Files {
		absolute, err := filepath.Abs(source)
		if err != nil {
			return err
		}
		args = append(args, "--file", name+"="+absolute)
	}
	cmd := exec.CommandContext(ctx, daemon, args...)
	cmd.Env = append(os.Environ(), wire.TokenVariable+"="+token)
	cmd.Stdout = c.Log
	cmd.Stderr = c.Log
	cmd.SysProcAttr = kernel.Isolation(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
	p, err := subprocess.Start(cmd)
	if err != nil {
		return err
	}
	return p.Wait()
}

// greetingLimit is what a connection may take to say its token.
const greetingLimit = 30 * time.Second

// accept waits for the daemon's connection; others are refused.
func (l *Lab) accept(ctx context.Context, listener net.Listener, token string) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		select {
		case <-l.ended:
			cancel(errors.New("it ended before it called back"))
		case <-ctx.Done():
		}
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return nil, fmt.Errorf("wait for the lab's daemon: %w", cmp.Or(context.Cause(ctx), err))
		}
		if greeted(conn, token) {
			return conn, nil
		}
		conn.Close()
	}
}

// greeted reads the token and nothing behind it, which belongs to the calls.
func greeted(conn net.Conn, token string) bool {
	if conn.SetReadDeadline(time.Now().Add(greetingLimit)) != nil {
		return false
	}
	line := make([]byte, len(token)+1)
	_, err := io.ReadFull(conn, line)
	return err == nil && string(line) == token+"\n" && conn.SetReadDeadline(time.Time{}) == nil
}
