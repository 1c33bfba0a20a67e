//go:build linux

package machine

import (
	"bufio"
	"cmp"
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
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// emulatorProgram is QEMU for the only architecture that the kernel package is taken for.
const emulatorProgram = "qemu-system-x86_64"

// emulator is one QEMU process to be.
type emulator struct {
	kernel, initrd, disk  string
	kernelArguments       string
	processors, memoryMiB int
	network               bool
}

// processor is the smallest that QEMU has for this architecture, with the instructions that cryptography needs. What
// later processors have for speed (rep movsb, AVX, huge pages) or for safety (SMAP, five levels of page tables) is slow
// when it is emulated.
const processor = "qemu64,-svm,+rdrand,+ssse3,+sse4.1,+sse4.2,+popcnt,+aes,+pclmulqdq"

// kernelArguments: warnings on the console, which have the stack of a processor that is stuck; no mitigations and no
// self-tests to wait for, panic switches the machine off, and the emulated time stamp counter is a good enough clock.
// The check of the timer takes a busy computer for broken hardware, and panics. Memory is not cleared more often than
// needed, nor by rep stos. With address space layout randomization (see norandmaps) QEMU would translate a program and
// its libraries again at each start.
const kernelArguments = "console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr tsc=reliable random.trust_cpu=on " +
	"no_timer_check clearcpuid=rep_good init_on_alloc=0 transparent_hugepage=never norandmaps"

// coarseTimers rounds the kernel's timers to its ticks of 4 ms.
const coarseTimers = " highres=off"

// firstStream is the number of the first file descriptor that a child process gets beyond the standard three.
const firstStream = 3

// arguments is QEMU's command line. The streams are connected sockets that QEMU inherits: no path to choose, to
// shorten or to clean up.
func (e emulator) arguments() []string {
	args := []string{
		// Software emulation always: it is the only kind that works alike everywhere, also where /dev/kvm only exists.
		"-accel", "tcg,thread=multi", "-cpu", processor, "-smp", strconv.Itoa(e.processors),
		"-m", strconv.Itoa(e.memoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", e.kernel, "-initrd", e.initrd, "-append", e.kernelArguments,
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
		"-chardev", socket("console", firstStream), "-serial", "chardev:console",
		"-chardev", socket("link", firstStream+1),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=link,name=" + guest.Port,
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

// stopAllowance is what QEMU gets to end by itself.
const stopAllowance = 10 * time.Second

const (
	// bootLimit is what a machine may take to boot, as a stopwatch counts; it takes a few seconds.
	bootLimit = time.Minute
	// bootAttempts is how often a machine is switched on until it boots.
	bootAttempts = 3
)

// errNotBooted and errWrongClock report that nothing of the command has run yet, so that the machine may be switched
// on again.
var (
	errNotBooted  = fmt.Errorf("it has not booted within %s", bootLimit)
	errWrongClock = errors.New("its clock is wrong")
)

// run boots the machine until its command has ended. Under software emulation the kernel comes to a stand while it
// boots, rarely and without a word, or measures the frequency of its clock wrongly; then the machine is switched off
// and on again.
func (e emulator) run(ctx context.Context, limit time.Duration, stdout, stderr io.Writer) (result guest.Result,
	err error) {
	for range bootAttempts {
		result, err = e.boot(ctx, limit, stdout, stderr)
		if !errors.Is(err, errNotBooted) && !errors.Is(err, errWrongClock) {
			break
		}
	}
	return result, err
}

// boot runs the machine once, for at most limit as a stopwatch counts.
func (e emulator) boot(ctx context.Context, limit time.Duration, stdout, stderr io.Writer) (guest.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	console, link, remote, err := openLines()
	if err != nil {
		return guest.Result{}, err
	}
	defer link.Close()
	var own strings.Builder // what QEMU itself has to say
	screen := kernelLog{stuck: cancel}
	cmd := exec.CommandContext(ctx, emulatorProgram, e.arguments()...)
	cmd.ExtraFiles = remote
	cmd.Stdout = &own
	cmd.Stderr = &own
	poweredOn := time.Now()
	qemu, err := subprocess.Start(cmd)
	closeAll(remote)
	if err != nil {
		closeAll([]*os.File{console})
		return guest.Result{}, err
	}
	watch := stopwatch{started: poweredOn, waited: func() time.Duration { return processorWait(qemu.PID()) }}
	booting, booted := context.WithCancel(ctx)
	defer booted()
	var watching sync.WaitGroup
	watching.Go(func() { copyAll(&screen, console) })
	go watch.cancelAfter(booting, bootLimit, cancel, errNotBooted)
	go watch.cancelAfter(ctx, limit, cancel, fmt.Errorf("%w: %s", ErrTimeLimit, limit))
	result, err := receive(link, cmp.Or(stdout, io.Discard), cmp.Or(stderr, io.Discard), func(uptime []byte) error {
		booted()
		return checkClock(uptime, time.Since(poweredOn))
	})
	err = errors.Join(err, qemu.Stop(stopAllowance))
	watching.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return guest.Result{}, fmt.Errorf("virtual machine: %w%s%s", err, evidence(own.String()),
			evidence(screen.String()))
	}
	return result, nil
}

// checkClock returns an error when the machine claims to have run for longer than its emulator has. The machine's time
// starts late and stands still while the emulator waits for a processor, so it may be shorter.
func checkClock(uptime []byte, elapsed time.Duration) error {
	claimed, err := time.ParseDuration(string(uptime))
	if err != nil {
		return fmt.Errorf("%w: %w", errWrongClock, err)
	}
	if claimed > elapsed*5/4 {
		return fmt.Errorf("%w: it counted %s within %s", errWrongClock, claimed, elapsed)
	}
	return nil
}

// receive passes the output on until the result comes. A writer that fails does not hold the machine up; its error
// is returned at the end. The command does not run unless booted returns nil.
func receive(link io.ReadWriter, stdout, stderr io.Writer, booted func(uptime []byte) error) (guest.Result, error) {
	frames := bufio.NewReaderSize(link, 64<<10)
	var failed error
	for {
		stream, data, err := guest.ReadFrame(frames)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return guest.Result{}, errors.New("it ended without a result")
		}
		if err != nil {
			return guest.Result{}, err
		}
		switch stream {
		case guest.Booted:
			if err := booted(data); err != nil {
				return guest.Result{}, err
			}
			_, err = link.Write([]byte{0})
		case guest.Stdout:
			_, err = stdout.Write(data)
		case guest.Stderr:
			_, err = stderr.Write(data)
		case guest.ResultJSON:
			result, err := decode(data)
			return result, errors.Join(err, failed)
		default:
			err = fmt.Errorf("frame of an unknown stream %d", stream)
		}
		if failed == nil {
			failed = err
		}
	}
}

// decode reads what the init program reported.
func decode(data []byte) (guest.Result, error) {
	var r guest.Result
	if err := json.Unmarshal(data, &r); err != nil {
		return guest.Result{}, fmt.Errorf("read the result: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// openLines makes the machine's serial lines; remote are QEMU's ends, in the order of their numbers.
func openLines() (console, link *os.File, remote []*os.File, err error) {
	var local []*os.File
	for range 2 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			closeAll(append(local, remote...))
			return nil, nil, nil, fmt.Errorf("open a serial line of the virtual machine: %w", err)
		}
		remote = append(remote, os.NewFile(uintptr(pair[0]), "machine"))
		local = append(local, os.NewFile(uintptr(pair[1]), "host"))
	}
	return local[0], local[1], remote, nil
}

// copyAll copies until QEMU is gone.
func copyAll(w io.Writer, r *os.File) {
	defer r.Close()
	_, _ = io.Copy(w, r)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// tailSize is how much of what was written is shown, in bytes.
const tailSize = 16 << 10

// evidence is the text for the end of an error message.
func evidence(written string) string {
	if text := strings.TrimSpace(written[max(0, len(written)-tailSize):]); text != "" {
		return "\n" + text
	}
	return ""
}
