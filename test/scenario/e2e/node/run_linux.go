package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
)

// startLimit is what containerd may take to answer on a busy emulated machine.
const startLimit = 5 * time.Minute

// Run starts containerd, gives it the images, and starts the kubelet. It returns when one of the two ends, with an
// error, or when the context ends. Progress is written to out.
func (s Spec) Run(ctx context.Context, out io.Writer) error {
	began := time.Now()
	say := func(what string) { fmt.Fprintf(out, "%6.1f s %s\n", time.Since(began).Seconds(), what) }
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.run(ctx, out, "/bin/busybox", "--install", "-s", "/bin"); err != nil {
		return err
	}
	var running []<-chan struct{}
	start := func(name string, args ...string) error {
		done, err := s.start(ctx, cancel, name, args...)
		running = append(running, done)
		return err
	}
	defer func() {
		cancel(nil)
		for _, done := range running {
			<-done
		}
	}()
	if err := start("containerd", "/usr/bin/containerd"); err != nil {
		return err
	}
	if err := s.answers(ctx); err != nil {
		return err
	}
	say("containerd answers")
	for _, archive := range s.Images {
		if err := s.Import(ctx, out, archive); err != nil {
			return err
		}
	}
	for name, known := range s.Names {
		if err := s.run(ctx, out, "/usr/bin/ctr", "--namespace=k8s.io", "images", "tag", known, name); err != nil {
			return fmt.Errorf("name %s %s: %w", known, name, err)
		}
	}
	say("images imported")
	flags, err := s.kubeadm(ctx, out)
	if err != nil {
		return err
	}
	say("kubeadm has written what the kubelet needs")
	if err := start("kubelet", kubeletCommand(flags)...); err != nil {
		return err
	}
	fmt.Fprintln(out, "kubelet started with", flags)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// kubeadm has kubeadm write the configuration of the kubelet, and returns the kubelet's flags.
func (s Spec) kubeadm(ctx context.Context, out io.Writer) ([]string, error) {
	command := "init"
	if s.Joins {
		command = "join"
	}
	if err := s.run(ctx, out, kubeadm, command, "phase", "kubelet-start", "--config="+kubeadmConfig); err != nil {
		return nil, err
	}
	flags, err := os.ReadFile(OnServer(installer.KubeletFlags))
	if err != nil {
		return nil, err
	}
	return installer.ParseFlags(flags)
}

// kubeletCommand is the kubelet's command line: that of kubeadm's systemd unit, the flags of kubeadm, and what the lab
// needs.
func kubeletCommand(flags []string) []string {
	return slices.Concat([]string{
		"/usr/bin/kubelet", "--bootstrap-kubeconfig=" + bootstrapAccess, "--kubeconfig=" + kubeletAccess,
		"--config=" + installer.KubeletConfig,
	}, flags, []string{
		"--config-dir=" + kubeletMore,
		"--housekeeping-interval=1m", "--v=1", // nothing reads the load of containers
	})
}

// Import gives containerd an OCI archive; it gets the name that the archive carries.
func (s Spec) Import(ctx context.Context, out io.Writer, archive string) error {
	if err := s.run(ctx, out, "/usr/bin/ctr", "--namespace=k8s.io", "images", "import", archive); err != nil {
		return fmt.Errorf("import %s: %w", archive, err)
	}
	return nil
}

// answers waits until containerd serves.
func (s Spec) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.run(ctx, io.Discard, "/usr/bin/ctr", "version")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer, its log is %s: %w", OnServer("/var/log/containerd.log"), err)
		case <-tick.C:
		}
	}
}

// start starts a program of the node in the background; when it ends, so does the node.
func (s Spec) start(ctx context.Context, end context.CancelCauseFunc, name string, args ...string) (<-chan struct{},
	error) {
	done := make(chan struct{})
	log, err := os.Create(OnServer(filepath.Join("/var/log", name+".log")))
	if err != nil {
		close(done)
		return done, err
	}
	defer log.Close()
	cmd := s.command(ctx, args...)
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		close(done)
		return done, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(done)
		end(fmt.Errorf("%s ended: %w; its log is %s", name, errors.Join(cmd.Wait(), errEnded), log.Name()))
	}()
	return done, nil
}

var errEnded = errors.New("it should run for as long as the node")

// run runs a program of the node to its end.
func (s Spec) run(ctx context.Context, out io.Writer, args ...string) error {
	cmd := s.command(ctx, args...)
	cmd.Stdout = out
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// EnterCommand is the first argument with which the program runs the others as a program of the node.
const EnterCommand = "enter"

// Enter becomes a program of the node, whose root file system becomes that of the process's mount namespace. A chroot
// is not enough: a program that is started in a container later, as a probe is, finds its root by the namespace.
func Enter(args []string) error {
	for _, parent := range []string{"/", filepath.Dir(Root)} {
		// What is below Root stays shared with the other programs of the node; its parent must not be.
		if err := unix.Mount("", parent, "", unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("make %s private: %w", parent, err)
		}
	}
	if err := errors.Join(unix.Chdir(Root), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."),
		unix.Chdir("/")); err != nil {
		return fmt.Errorf("change the root file system: %w", err)
	}
	return fmt.Errorf("run %s: %w", args[0], unix.Exec(args[0], args, os.Environ()))
}

// command prepares a program of the node.
func (s Spec) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{EnterCommand}, args...)...)
	cmd.Dir = "/"
	// Under emulation time is dear and memory cheap, so garbage may lie for longer.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/tmp", "GOGC=400"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	return cmd
}
