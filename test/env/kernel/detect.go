//go:build linux

package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

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
