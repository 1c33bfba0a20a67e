//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/machine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// enterNamespaces makes the new namespaces usable before the test binary takes the shell's place: nothing mounted here
// may reach the system, /sys has to show the interfaces of this namespace, and the loopback interface begins down.
const enterNamespaces = `mount --make-rprivate / && mount -t sysfs sysfs /sys && ip link set lo up && exec "$0" "$@"`

// runInPlace runs this test binary again in a network namespace of its own. A namespace belongs to a thread, and the
// runtime has started threads long ago, so only a new process is wholly inside.
func runInPlace(ctx context.Context, o options) (int, error) {
	if err := Require(ctx, o.programs...); err != nil {
		return 0, err
	}
	cmd, err := Rerun(ctx, os.Args[1:]...)
	if err != nil {
		return 0, fmt.Errorf("run the tests in a network namespace: %w", err)
	}
	cmd.Env = append(os.Environ(), Variable+"="+guest.Inside)
	p, err := subprocess.Start(cmd)
	if err != nil {
		return 0, err
	}
	return exitCode(p.Wait())
}

// Rerun is the running program once more, with other arguments, in network and mount namespaces of its own in which
// only the loopback interface is. The caller starts it; it takes no 802.1Q.
func Rerun(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", enterNamespaces, self}, args...)...)
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = Isolation(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS)
	return cmd, nil
}

// exitCode separates a program that ended with a code from one that did not run.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	default:
		return 0, fmt.Errorf("run the tests in a network namespace: %w", err)
	}
}

// Require makes sure that programs are installed on this system, and installs their packages where it may. Where all
// of them are there it needs nothing else, also inside the virtual machine.
func Require(ctx context.Context, programs ...string) error {
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return tools.Packages(ctx, programs...)
		}
	}
	return nil
}

// probe is what a kernel must be able to do: a VLAN link and a bridge that filters VLANs. The loopback interface
// carries no VLANs, so a pair is used.
const probe = `link add name probe0 type veth peer name probe1
link add link probe0 name probe0.100 type vlan id 100
link add name probe2 type bridge vlan_filtering 1
`

// Detect reports whether the running kernel has 802.1Q and this process may use it, by making such links in a fresh
// network namespace, which is gone when it returns. The error names what is missing.
func Detect(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(probe)
	cmd.SysProcAttr = Isolation(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("the running kernel makes no VLAN link in a network namespace of ours: %w: %s", err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

// Isolation gives a child process namespaces of its own (CLONE_NEW... flags of clone(2)) and ends it with its
// parent. Who is not root gets a user namespace in which the child is.
func Isolation(namespaces uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// Prepare makes ready what Main and the network lab need with these programs of the system: their packages, and the
// parts of the virtual machine where the running kernel has no 802.1Q. It may be left out; called before, it installs
// and downloads where the user sees it instead of in the middle of a test.
func Prepare(ctx context.Context, programs ...string) error {
	inPlace, err := InPlace(ctx)
	switch {
	case err != nil:
		return err
	case inPlace:
		return Require(ctx, programs...)
	default:
		return machine.Prepare(ctx, programs)
	}
}
