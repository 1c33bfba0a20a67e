//go:build linux

// Command labd holds the network lab. It connects to its caller, says the token that it was given, serves the
// caller's calls on that connection and takes the whole lab away when the connection ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/daemon"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
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

// privateRoot makes a root file system that shows everything of the present one and the lab's directory besides,
// without touching a disk, and moves this process to it. It needs a mount namespace and a process namespace of our
// own; dir is where the new root is put together.
func privateRoot(dir string, handed map[string]string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := show(dir, e); err != nil {
			return fmt.Errorf("show /%s: %w", e.Name(), err)
		}
	}
	if err := handOver(filepath.Join(dir, wire.Directory), handed); err != nil {
		return err
	}
	return enter(dir)
}

// show makes one entry of the root appear in the new one.
func show(dir string, e fs.DirEntry) error {
	source := filepath.Join("/", e.Name())
	target := filepath.Join(dir, e.Name())
	switch {
	case e.Name() == filepath.Base(wire.Directory):
		return nil // the lab's own takes its place
	case e.Name() == "proc":
		// That of our own process namespace.
		return errors.Join(os.Mkdir(target, 0o755), unix.Mount("proc", target, "proc", 0, ""))
	case e.IsDir():
		return errors.Join(os.Mkdir(target, 0o755), unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""))
	case e.Type() == fs.ModeSymlink:
		link, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	default:
		return nil // stray files in / are of no use to programs of the lab
	}
}

// handOver links the files that the caller gave.
func handOver(dir string, handed map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, source := range handed {
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(source, target); err != nil {
			return err
		}
	}
	return nil
}

// enter makes dir the root by moving it on top of the present one: pivot_root(2) refuses where that is an initramfs,
// as in the virtual machine.
func enter(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return os.Chdir("/")
}
