//go:build linux

package machine

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// rootFS defines what the root file system is made of.
type rootFS struct {
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

// write writes the archive. Large files and the command to run come in further archives or on a disk.
func (r rootFS) write(w io.Writer) error {
	index, err := openIndex(r.Modules)
	if err != nil {
		return err
	}
	modules, err := index.resolve(r.Wanted...)
	if err != nil {
		return err
	}
	a := newArchive(w)
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
	if err := addProgram(a, "bin/busybox", r.Busybox); err != nil {
		return err
	}
	if err := addProgram(a, "init", r.Init); err != nil {
		return err
	}
	if err := addModules(a, r.Modules, modules); err != nil {
		return err
	}
	return a.Close()
}

func addProgram(a *cpioArchive, name, source string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("add %s to the initramfs: %w", name, err)
	}
	a.File(name, 0o755, data)
	return nil
}

func addModules(a *cpioArchive, root string, modules []module) error {
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

// cpioArchive writes a cpio archive in the "newc" format, the one that the kernel unpacks into its first root
// (Documentation/driver-api/early-userspace/buffer-format.rst). Archives may be concatenated.
// The first error sticks and is returned by Close.
type cpioArchive struct {
	w     io.Writer
	inode uint32
	dirs  map[string]bool
	err   error
}

// Types of files as stat(2) knows them.
const (
	modeDirectory = 0o040000
	modeRegular   = 0o100000
	modeSymlink   = 0o120000
)

// trailer is the name that ends an archive.
const trailer = "TRAILER!!!"

// newArchive begins an archive.
func newArchive(w io.Writer) *cpioArchive {
	return &cpioArchive{w: w, dirs: map[string]bool{".": true, "": true}}
}

// Directory adds a directory and those above it, each once.
func (a *cpioArchive) Directory(name string) {
	name = clean(name)
	if a.dirs[name] {
		return
	}
	a.dirs[name] = true
	a.Directory(path.Dir(name))
	a.entry(name, modeDirectory|0o755, nil)
}

// File adds a regular file and the directories above it.
func (a *cpioArchive) File(name string, perm fs.FileMode, data []byte) {
	a.Directory(path.Dir(clean(name)))
	a.entry(clean(name), modeRegular|uint32(perm.Perm()), data)
}

// Symlink adds a symbolic link and the directories above it.
func (a *cpioArchive) Symlink(name, target string) {
	a.Directory(path.Dir(clean(name)))
	a.entry(clean(name), modeSymlink|0o777, []byte(target))
}

// Close ends the archive; the underlying writer stays open.
func (a *cpioArchive) Close() error {
	a.inode = 0
	a.entry(trailer, 0, nil)
	return a.err
}

// entry writes one header, name and contents, each padded to four bytes.
func (a *cpioArchive) entry(name string, mode uint32, data []byte) {
	a.inode++
	a.write([]byte(header(a.inode, mode, len(data), len(name)+1) + name + "\x00"))
	a.pad(headerSize + len(name) + 1)
	a.write(data)
	a.pad(len(data))
}

// headerSize is the length of a newc header in bytes.
const headerSize = 6 + 13*8

// header formats the thirteen fields. Owner is root; the time is 0, so that equal contents give equal archives.
func header(inode, mode uint32, size, nameSize int) string {
	const links = 1
	return fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, nameSize, 0)
}

func (a *cpioArchive) pad(n int) {
	if rest := n % 4; rest != 0 {
		a.write(make([]byte, 4-rest))
	}
}

func (a *cpioArchive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}

// clean makes a name relative, as archives want it.
func clean(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }
