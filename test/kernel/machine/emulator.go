package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/tools/subprocess"
)

// emulatorProgram is QEMU for the only architecture that the kernel package is taken for.
const emulatorProgram = "qemu-system-x86_64"

// emulator is one QEMU process to be.
type emulator struct {
	kernel, initrd, disk string
	memoryMiB            int
	network              bool
}

// kernelArguments: no mitigations and no self-tests to wait for, panic switches the machine off, and the emulated
// time stamp counter is good enough as a clock.
const kernelArguments = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable random.trust_cpu=on"

// firstStream is the number of the first file descriptor that a child process gets beyond the standard three.
const firstStream = 3

// arguments is QEMU's command line. The streams are connected sockets that QEMU inherits: no path to choose, to
// shorten or to clean up.
func (e emulator) arguments() []string {
	args := []string{
		// Software emulation always: it is the only kind that works alike everywhere, also where /dev/kvm only exists.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(e.memoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", e.kernel, "-initrd", e.initrd, "-append", kernelArguments,
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
		"-chardev", socket("console", firstStream), "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
	}
	for i, port := range []string{guest.PortStdout, guest.PortStderr, guest.PortResult} {
		args = append(args, "-chardev", socket(port, firstStream+1+i),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", port, port))
	}
	if e.disk != "" {
		args = append(args, "-drive", "file="+strings.ReplaceAll(e.disk, ",", ",,")+",format=raw,if=virtio,readonly=on")
	}
	if e.network {
		args = append(args, "-netdev", "user,id=host,ipv6=off", "-device", "virtio-net-pci,netdev=host")
	}
	return args
}

func socket(id string, fd int) string { return fmt.Sprintf("socket,id=%s,fd=%d,server=off", id, fd) }

// boot runs the machine to its end.
func (e emulator) boot(ctx context.Context, stdout, stderr io.Writer) (guest.Result, error) {
	var console tail
	var result bytes.Buffer
	s, err := openStreams([]io.Writer{&console, orDiscard(stdout), orDiscard(stderr), &result})
	if err != nil {
		return guest.Result{}, err
	}
	var own tail // what QEMU itself has to say
	cmd := exec.CommandContext(ctx, emulatorProgram, e.arguments()...)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = s.remote, &own, &own
	qemu, err := subprocess.Start(cmd)
	closeAll(s.remote)
	if err == nil {
		err = qemu.Wait()
	}
	if err := errors.Join(s.wait(), context.Cause(ctx)); err != nil {
		return guest.Result{}, fmt.Errorf("virtual machine: %w%s", err, console.evidence())
	}
	if err != nil {
		return guest.Result{}, fmt.Errorf("virtual machine: %w%s%s", err, own.evidence(), console.evidence())
	}
	return decode(result.Bytes(), &console)
}

// decode reads what the init program reported.
func decode(data []byte, console *tail) (guest.Result, error) {
	var r guest.Result
	if err := json.Unmarshal(data, &r); err != nil {
		return guest.Result{}, fmt.Errorf("the virtual machine ended without a result%s", console.evidence())
	}
	if r.Error != "" {
		return r, fmt.Errorf("virtual machine: %s%s", r.Error, console.evidence())
	}
	return r, nil
}

// streams are the serial lines of a machine.
type streams struct {
	remote []*os.File // QEMU's ends
	local  []*os.File
	copies sync.WaitGroup
	mu     sync.Mutex
	err    error
}

// openStreams makes a line for each writer and begins to copy.
func openStreams(writers []io.Writer) (*streams, error) {
	s := &streams{}
	for i := range writers {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			closeAll(s.remote)
			closeAll(s.local)
			return nil, fmt.Errorf("open serial line %d of the virtual machine: %w", i, err)
		}
		s.remote = append(s.remote, os.NewFile(uintptr(pair[0]), "machine"))
		s.local = append(s.local, os.NewFile(uintptr(pair[1]), "host"))
	}
	for i, w := range writers {
		s.copies.Go(func() { s.fail(copyAll(w, s.local[i])) })
	}
	return s, nil
}

// copyAll copies until QEMU is gone. A writer that fails does not block the machine: the rest is discarded.
func copyAll(w io.Writer, r io.ReadCloser) error {
	_, err := io.Copy(w, r)
	_, _ = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

func (s *streams) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// wait returns when everything that the machine has sent is written.
func (s *streams) wait() error {
	s.copies.Wait()
	return s.err
}

// tail keeps the last few kilobytes written to it.
type tail struct{ data []byte }

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - tailSize; extra > 0 {
		t.data = append([]byte(nil), t.data[extra:]...)
	}
	return len(p), nil
}

// evidence is the text for the end of an error message.
func (t *tail) evidence() string {
	if text := strings.TrimSpace(string(t.data)); text != "" {
		return "\n" + text
	}
	return ""
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
