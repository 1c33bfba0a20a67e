// Package initramfs makes the first root file system of the virtual machine: busybox, chosen kernel modules and
// the init program.
package initramfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Base defines what the root file system is made of.
type Base struct {
	// Modules is a lib/modules/<version> directory.
	Modules string
	// Busybox is a statically linked busybox, Init the program that the kernel starts first; both host paths.
	Busybox, Init string
	// Wanted names the modules to include; what they depend on comes with them.
	Wanted []string
}

// directories that programs expect to exist.
var directories = []string{
	"bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "dev", "proc", "sys", "run", "tmp", "etc", "root", "var/log",
	"payload", "lab",
}

// protocols is /etc/protocols, as every distribution has it, with what a Service can have and what goes with it.
// Without it nft lists protocols as numbers.
const protocols = `ip 0 IP
icmp 1 ICMP
tcp 6 TCP
udp 17 UDP
ipv6-icmp 58 IPv6-ICMP
sctp 132 SCTP
`

// Write writes the archive. Large files and the command to run come in further archives or on a disk.
func (b Base) Write(w io.Writer) error {
	index, err := OpenIndex(b.Modules)
	if err != nil {
		return err
	}
	modules, err := index.Resolve(b.Wanted...)
	if err != nil {
		return err
	}
	a := NewArchive(w)
	for _, d := range directories {
		a.Directory(d)
	}
	a.File("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.File("etc/group", 0o644, []byte("root:x:0:\n"))
	a.File("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	a.File("etc/nsswitch.conf", 0o644, []byte("hosts: files\n"))
	a.File("etc/protocols", 0o644, []byte(protocols))
	a.Symlink("sbin/modprobe", "/bin/busybox") // what the kernel calls to load a module on demand
	a.Symlink("var/run", "/run")
	if err := addProgram(a, "bin/busybox", b.Busybox); err != nil {
		return err
	}
	if err := addProgram(a, "init", b.Init); err != nil {
		return err
	}
	if err := addModules(a, b.Modules, modules); err != nil {
		return err
	}
	return a.Close()
}

func addProgram(a *Archive, name, source string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("add %s to the initramfs: %w", name, err)
	}
	a.File(name, 0o755, data)
	return nil
}

func addModules(a *Archive, root string, modules []Module) error {
	dir := filepath.Join("lib/modules", filepath.Base(root))
	for _, m := range modules {
		data, err := os.ReadFile(filepath.Join(root, m.Path))
		if err != nil {
			return fmt.Errorf("add kernel module %s to the initramfs: %w", m.Name, err)
		}
		a.File(filepath.Join(dir, m.Path), 0o644, data)
	}
	for _, name := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return fmt.Errorf("add %s to the initramfs: %w", name, err)
		}
		a.File(filepath.Join(dir, name), 0o644, data)
	}
	a.File(filepath.Join(dir, "modules.dep"), 0o644, dependencies(modules))
	a.File(filepath.Join(dir, "modules.alias"), 0o644, aliases(modules))
	return nil
}
