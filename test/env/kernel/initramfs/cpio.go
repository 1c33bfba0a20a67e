package initramfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Archive writes a cpio archive in the "newc" format, the one that the kernel unpacks into its first root
// (Documentation/driver-api/early-userspace/buffer-format.rst). Archives may be concatenated.
// The first error sticks and is returned by Close.
type Archive struct {
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

// NewArchive begins an archive.
func NewArchive(w io.Writer) *Archive {
	return &Archive{w: w, dirs: map[string]bool{".": true, "": true}}
}

// Directory adds a directory and those above it, each once.
func (a *Archive) Directory(name string) {
	name = clean(name)
	if a.dirs[name] {
		return
	}
	a.dirs[name] = true
	a.Directory(path.Dir(name))
	a.entry(name, modeDirectory|0o755, nil)
}

// File adds a regular file and the directories above it.
func (a *Archive) File(name string, perm fs.FileMode, data []byte) {
	a.Directory(path.Dir(clean(name)))
	a.entry(clean(name), modeRegular|uint32(perm.Perm()), data)
}

// Symlink adds a symbolic link and the directories above it.
func (a *Archive) Symlink(name, target string) {
	a.Directory(path.Dir(clean(name)))
	a.entry(clean(name), modeSymlink|0o777, []byte(target))
}

// Close ends the archive; the underlying writer stays open.
func (a *Archive) Close() error {
	a.inode = 0
	a.entry(trailer, 0, nil)
	return a.err
}

// entry writes one header, name and contents, each padded to four bytes.
func (a *Archive) entry(name string, mode uint32, data []byte) {
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

func (a *Archive) pad(n int) {
	if rest := n % 4; rest != 0 {
		a.write(make([]byte, 4-rest))
	}
}

func (a *Archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}

// clean makes a name relative, as archives want it.
func clean(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }
