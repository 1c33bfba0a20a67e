//go:build linux

// Command guestinit is the first process of the virtual machine in which tests find a kernel with 802.1Q: it
// mounts what programs expect, runs one command, and reports how it ended; the host then switches the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guestinit is the init program of a virtual machine; it does nothing elsewhere")
		os.Exit(2)
	}
	port, result := run()
	if err := report(port, result); err != nil {
		fmt.Fprintf(os.Stderr, "guestinit: %v (result: %s)\n", err, result.Error)
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	// The host switches the machine off when it has read the result; until then it must not be lost.
	for {
		_ = unix.Pause()
	}
}

// run prepares the machine and runs the command of the Spec. It returns the port to the host, nil when there is none:
// the port stays open until the result is sent.
func run() (*os.File, guest.Result) {
	err := os.Setenv("PATH", path)
	spec, prepareErr := prepare()
	port, portErr := openPort(guest.Port)
	if err := errors.Join(err, prepareErr, portErr); err != nil {
		return port, guest.Result{Error: err.Error()}
	}
	code, err := execute(spec, port)
	if err != nil {
		return port, guest.Result{Error: err.Error()}
	}
	return port, guest.Result{ExitCode: code, Files: fetch(spec.Fetch)}
}

// prepare makes an ordinary Linux system out of an unpacked initramfs.
func prepare() (guest.Spec, error) {
	var spec guest.Spec
	if err := mountAll(); err != nil {
		return spec, err
	}
	data, err := os.ReadFile(guest.SpecPath)
	if err != nil {
		return spec, fmt.Errorf("read what to run: %w", err)
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return spec, fmt.Errorf("read what to run from %s: %w", guest.SpecPath, err)
	}
	// The applets of busybox become commands, and modprobe what the kernel calls.
	if err := command("/bin/busybox", "--install", "-s", "/bin"); err != nil {
		return spec, err
	}
	// Modules that are built in count as loaded; what the kernel asks for later is loaded on demand.
	if err := command("/sbin/modprobe", "-a", "virtio_pci", "virtio_console", "virtio_blk", "virtio_net",
		"virtio_rng"); err != nil {
		return spec, err
	}
	if spec.Disk {
		if err := mountPayload(); err != nil {
			return spec, err
		}
	}
	return spec, configureNetwork(spec.Network)
}

// uptime is the time since the kernel started.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// fetch reads the wanted files; what does not exist is left out.
func fetch(names []string) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil {
			files[name] = data
		}
	}
	return files
}

// report sends the result to the host.
func report(port *os.File, result guest.Result) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if port == nil {
		return errors.New("there is no port to the host")
	}
	return guest.WriteFrame(port, guest.ResultJSON, text)
}

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
