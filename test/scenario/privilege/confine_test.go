//go:build linux

package privilege

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confinedVariable names the program that this one becomes, once it has given up everything that a container with
// "drop: [ALL], add: [NET_RAW]" and a read-only root file system does not have.
const confinedVariable = "PNAP_BECOME_CONFINED"

// netRaw is the one capability as /proc/<pid>/status writes it.
var netRaw = fmt.Sprintf("%016x", 1<<unix.CAP_NET_RAW)

// become gives up rights and turns into the program. It only returns with an error.
func become(program string) error {
	// Capabilities belong to threads; the one that executes the program takes its own along.
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the file systems read-only: %w", err)
	}
	if err := os.WriteFile("/tmp/phoenixnap-not-writable", nil, 0o600); !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("writing to a read-only file system: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if c == unix.CAP_NET_RAW {
			continue
		}
		// newer than the kernel
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	only := unix.CapUserData{Effective: 1 << unix.CAP_NET_RAW, Permitted: 1 << unix.CAP_NET_RAW}
	data := [2]unix.CapUserData{only}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3},
		(*unix.CapUserData)(unsafe.Pointer(&data))); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	return syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}

// confined is the command that runs a program without rights. A user other than root becomes root of a new user
// namespace.
func confined(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), confinedVariable+"="+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// status returns a line of /proc/<pid>/status.
func status(t *testing.T, pid int, name string) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, is := strings.CutPrefix(line, name+":"); is {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, name)
	return ""
}
