//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/kernel/guest"
)

// mountAll mounts the file systems that the kernel provides. There is none on /tmp
// and /run: the root is in memory anyway, and it would hide the files of a source tree that lies there.
func mountAll() error {
	for _, m := range []struct{ kind, target string }{
		{"devtmpfs", "/dev"}, {"devpts", "/dev/pts"}, {"proc", "/proc"}, {"sysfs", "/sys"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for dir, mode := range map[string]fs.FileMode{"/run": 0o755, "/tmp": 0o777 | fs.ModeSticky} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
		if err := os.Chmod(dir, mode); err != nil { // MkdirAll is subject to the umask, and the directory may be there
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	return nil
}

// installBusybox makes the applets of busybox commands, and modprobe what the kernel calls.
func installBusybox() error {
	return command("/bin/busybox", "--install", "-s", "/bin")
}

// loadModules loads modules by name; those that are built in count as loaded.
func loadModules(names []string) error {
	return command("/sbin/modprobe", append([]string{"-a"}, names...)...)
}

// mountPayload mounts the disk with the large files and links each of them to its place.
func mountPayload() error {
	if err := unix.Mount("/dev/vda", guest.PayloadMount, "ext4", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the payload disk: %w", err)
	}
	return filepath.WalkDir(guest.PayloadMount, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := strings.TrimPrefix(p, guest.PayloadMount)
		if e.IsDir() {
			return os.MkdirAll("/"+target, 0o755)
		}
		_ = os.Remove(target)
		return os.Symlink(p, target)
	})
}

// configureNetwork brings up the loopback interface and, where there is one, the user-mode NIC.
func configureNetwork(nic bool) error {
	if err := unix.Sethostname([]byte("machine")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := linkUp("lo"); err != nil || !nic {
		return err
	}
	if err := linkUp("eth0"); err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}
	addr, err := netlink.ParseAddr(guest.Address)
	if err != nil {
		return fmt.Errorf("address of eth0: %w", err)
	}
	if err := netlink.AddrAdd(eth0, addr); err != nil {
		return fmt.Errorf("give eth0 the address %s: %w", guest.Address, err)
	}
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(guest.HostAddress)})
	if err != nil {
		return fmt.Errorf("route to %s: %w", guest.HostAddress, err)
	}
	return nil
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// openPort opens a virtio-serial port by the name that the host gave it.
func openPort(name string) (*os.File, error) {
	const class = "/sys/class/virtio-ports"
	ports, err := os.ReadDir(class)
	if err != nil {
		return nil, fmt.Errorf("list the serial ports: %w", err)
	}
	for _, p := range ports {
		label, err := os.ReadFile(filepath.Join(class, p.Name(), "name"))
		if err == nil && strings.TrimSpace(string(label)) == name {
			return os.OpenFile(filepath.Join("/dev", p.Name()), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("the machine has no serial port %s", name)
}
