//go:build linux

package space

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Environment is what every program in a space finds in its environment, before what it is given.
func (s *Space) Environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/run/home", "TMPDIR=/run/tmp", "HOSTNAME=" + s.Name}
}

// Start starts a program in the space. It is killed when the space is closed.
func (s *Space) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return s.Do(cmd.Start)
}

// Processes are the IDs of the processes in the space, children of what was started there included. A process
// belongs to the space whose network it uses; this process, whose threads visit spaces, belongs to none.
func (s *Space) Processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes of host %s: %w", s.Name, err)
	}
	var ids []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil || id == os.Getpid() {
			continue
		}
		var stat unix.Stat_t
		// A process may end while the list is read.
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &stat) == nil && stat.Ino == s.inode {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Kill sends SIGKILL to every process in the space until none is left.
func (s *Space) Kill() error {
	// A process may fork while the list is read; its child is found the next time. The bound stops a fork bomb.
	for range 100 {
		ids, err := s.Processes()
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			_ = unix.Kill(id, unix.SIGKILL)
		}
	}
	return nil
}
