//go:build linux

// Package installer runs what installs clusters: the phases of kubeadm, in a root file system of their own, so that the
// files and the flags of the kubelet are those that kubeadm writes.
package installer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// configuration is where the configuration for kubeadm is.
const configuration = "/kubeadm.yaml"

// Kubeadm is kubeadm on a machine without services: its files are below a directory.
type Kubeadm struct {
	// Root is where the files are on this machine.
	Root string
}

// NewKubeadm prepares a machine in an empty directory, with the configuration for kubeadm init. Phases that need an API
// server would look for it at the address of the machine, which is not there.
func NewKubeadm(root string, config Config) (Kubeadm, error) {
	k := Kubeadm{Root: root}
	for _, dir := range []string{"/etc/kubernetes", "/tmp", "/proc"} {
		if err := os.MkdirAll(k.Path(dir), 0o755); err != nil {
			return k, err
		}
	}
	return k, os.WriteFile(k.Path(configuration), []byte(config), 0o600)
}

// Path is where a file of the machine is on this one.
func (k Kubeadm) Path(name string) string { return filepath.Join(k.Root, name) }

// Init runs a phase of kubeadm init, for example kubelet-start, and returns what it prints.
func (k Kubeadm) Init(ctx context.Context, phase ...string) (string, error) {
	return k.run(ctx, append([]string{"init", "phase"}, phase...)...)
}

func (k Kubeadm) run(ctx context.Context, args ...string) (string, error) {
	program, err := tools.Binary(ctx, "kubeadm")
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(args, "--config="+configuration, "--rootfs="+k.Root)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/"}
	cmd.Stdout = &out
	cmd.Stderr = &out
	if os.Getuid() != 0 { // another root file system is for root only
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	}
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubeadm %s: %w: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}
