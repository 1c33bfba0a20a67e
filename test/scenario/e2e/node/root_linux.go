package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
)

const cgroups = "/sys/fs/cgroup"

// directories that the node's programs expect; those of containerd and kubelet are file systems in memory, as an
// overlay cannot lie upon an overlay.
var directories = []string{
	"/bin", "/dev", "/etc/cni/net.d", "/etc/containerd", "/etc/kubernetes/manifests",
	"/etc/kubernetes/pki", kubeletMore, "/opt", "/proc", "/root", "/run",
	"/sys", "/tmp", "/var/log",
	"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cni",
}

// Assemble makes the root file system of the node at Root, in the mounts of the calling process.
func (s Spec) Assemble() error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"control groups", s.controlGroups}, {"overlay", s.overlay}, {"mounts", mountAll},
		{"configuration", s.configure},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("make the root file system of %s: %s: %w", s.Name, step.name, err)
		}
	}
	return nil
}

// controlGroups gives the node a part of the machine's hierarchy, with all controllers. This process and what it starts
// go into one of their own, as a system's services do (systemd.special(7), system.slice): else each of their threads
// would weigh as much as all pods of the node.
func (s Spec) controlGroups() error {
	// Two nodes of a machine have one hierarchy; the server's own /sys does not show it yet.
	if err := unix.Mount("cgroup2", cgroups, "cgroup2", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return err
	}
	available, err := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(available)) {
		if err := os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	services := filepath.Join(cgroups, s.Name+"-services")
	for _, dir := range []string{filepath.Join(cgroups, s.Name), services} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(services, "cgroup.procs"), []byte("0"), 0)
}

// overlay lays a writable layer in memory upon the tree.
func (s Spec) overlay() error {
	const layer = "/run/node-layer"
	if err := inMemory(layer); err != nil {
		return err
	}
	for _, dir := range []string{layer + "/upper", layer + "/work", Root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", strings.Join(s.Tree, ":"), layer, layer)
	if err := unix.Mount("overlay", Root, "overlay", 0, options); err != nil {
		return err
	}
	// Kubelet and containers hand mounts on to each other, only below this root.
	return unix.Mount("", Root, "", unix.MS_REC|unix.MS_SHARED, "")
}

func inMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755")
}

func mountAll() error {
	for _, dir := range directories {
		if err := os.MkdirAll(OnServer(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/run", "/tmp", "/var/lib/containerd", "/var/lib/kubelet", "/var/log"} {
		if err := inMemory(OnServer(dir)); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := unix.Mount(dir, OnServer(dir), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(OnServer("/dev/shm"), 0o755); err != nil {
		return err
	}
	return unix.Mount("shm", OnServer("/dev/shm"), "tmpfs", 0, "")
}

// configure writes the configuration of the node's programs.
func (s Spec) configure() error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for there, file := range map[string]string{kubeletAccess: s.Kubeconfig, installer.AdminConfig: s.Admin} {
		if files[there], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(OnServer(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
