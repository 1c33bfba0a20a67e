//go:build linux

// Package machine runs one command in a throw-away virtual machine whose kernel has 802.1Q, bonding and nftables,
// under QEMU's software emulation: slow, but the same on every computer and without any privilege.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
)

// Config defines what to run and with what.
type Config struct {
	// Command is the program, as a path in the machine or a name to look up there, with its arguments.
	Command []string
	// Env is added to PATH, HOME and TMPDIR; each entry is NAME=value.
	Env []string
	// Dir is the working directory in the machine; it is made. Empty means /.
	Dir string
	// Files are put into the machine: absolute path there → file or directory of the host. Files up to 1 MiB can
	// be written to, larger ones are on a read-only disk.
	Files map[string]string
	// Programs are programs of the host, such as nft, that are put into /usr/sbin with their shared libraries.
	Programs []string
	// Fetch names files in the machine whose contents come back with the result.
	Fetch []string
	// Network gives the machine a NIC by which it reaches the host's loopback interface as guest.HostAddress.
	Network bool
	// MemoryMiB is the memory; 0 means 512.
	MemoryMiB int
	// TimeLimit ends the machine whatever it does; 0 means 10 minutes. The time in which its emulator waits for a
	// processor of a busy computer does not count.
	TimeLimit time.Duration
	// Stdout and Stderr receive the command's output; nil discards it.
	Stdout, Stderr io.Writer
}

// ErrTimeLimit reports that the machine was switched off because its time limit was reached.
var ErrTimeLimit = errors.New("time limit of the virtual machine reached")

const (
	defaultMemoryMiB = 512
	defaultTimeLimit = 10 * time.Minute
)

// Run boots the machine, runs the command and returns how it ended. An exit code other than 0 is a result, not an
// error; an error means that the command did not run to its end. Nothing is left behind, however it ends.
func Run(ctx context.Context, c Config) (guest.Result, error) {
	limit := cmp.Or(c.TimeLimit, defaultTimeLimit)
	b, err := prepare(ctx, c.Programs)
	if err != nil {
		return guest.Result{}, fmt.Errorf("prepare the virtual machine: %w", err)
	}
	dir, err := os.MkdirTemp("", "pnap-machine-")
	if err != nil {
		return guest.Result{}, fmt.Errorf("prepare the virtual machine: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the temporary directory belongs to the system from here on
	emulator, err := load(ctx, c, b, dir)
	if err != nil {
		return guest.Result{}, fmt.Errorf("prepare the virtual machine: %w", err)
	}
	return emulator.run(ctx, limit, c.Stdout, c.Stderr)
}

// load writes what QEMU boots from: the initramfs and, where there are large files, the disk.
func load(ctx context.Context, c Config, b base, dir string) (emulator, error) {
	files, err := expand(c.Files)
	if err != nil {
		return emulator{}, err
	}
	programs, err := programFiles(ctx, c.Programs)
	if err != nil {
		return emulator{}, err
	}
	small, large := split(append(files, programs...), smallFile)
	e := emulator{kernel: b.kernel, initrd: filepath.Join(dir, "initrd"),
		memoryMiB: cmp.Or(c.MemoryMiB, defaultMemoryMiB), network: c.Network,
		// One processor and coarse timers are cheaper to emulate. What needs the host's API server is a cluster, which
		// misses its deadlines with them.
		processors: 1, kernelArguments: kernelArguments + coarseTimers}
	if c.Network {
		e.processors = 2
		e.kernelArguments = kernelArguments
	}
	if len(large) > 0 {
		e.disk = filepath.Join(dir, "disk")
		if err := makeDisk(ctx, dir, e.disk, large); err != nil {
			return emulator{}, err
		}
	}
	return e, writeInitrd(ctx, dir, e.initrd, b.archive, c.spec(len(large) > 0), small)
}

// spec is what the init program has to know.
func (c Config) spec(disk bool) guest.Spec {
	return guest.Spec{
		Command: c.Command, Env: c.Env, Dir: cmp.Or(c.Dir, "/"),
		Disk: disk, Network: c.Network, Fetch: c.Fetch,
	}
}
