//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools/subprocess"
)

// enterNamespaces makes the new namespaces usable before the test binary takes the shell's place: nothing mounted here may
// reach the system, /sys has to show the interfaces of this namespace, and the loopback interface begins down.
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
