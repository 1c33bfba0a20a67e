//go:build linux

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
)

// smallFile is the size up to which a file travels in the initramfs, where it takes memory twice while the
// kernel unpacks it; larger ones are read from a disk.
const smallFile = 1 << 20

// file is one file to be put into the machine.
type file struct {
	target, source string
	size           int64
	perm           fs.FileMode
}

// expand resolves directories into their files; symbolic links are followed. In a directory, a link that leads nowhere
// is left out: that of a Debian package may lead into another one.
func expand(files map[string]string) ([]file, error) {
	var all []file
	for target, source := range files {
		root, err := filepath.EvalSymlinks(source)
		if err != nil {
			return nil, fmt.Errorf("file %s for the machine: %w", target, err)
		}
		if err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := os.Stat(p)
			if errors.Is(err, fs.ErrNotExist) && e.Type() == fs.ModeSymlink {
				return nil
			}
			if err != nil || !info.Mode().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(root, p) // "." where the root is a file
			all = append(all, file{target: filepath.Join(target, rel), source: p, size: info.Size(),
				perm: info.Mode().Perm()})
			return err
		}); err != nil {
			return nil, fmt.Errorf("directory %s for the machine: %w", target, err)
		}
	}
	return all, nil
}

// split separates files up to the limit from larger ones.
func split(files []file, limit int64) (small, large []file) {
	for _, f := range files {
		if f.size <= limit {
			small = append(small, f)
		} else {
			large = append(large, f)
		}
	}
	return small, large
}

// programFiles finds programs of the host and the shared libraries that they load.
func programFiles(ctx context.Context, names []string) ([]file, error) {
	want := map[string]string{}
	for _, name := range names {
		program, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("program %s for the machine: %w", name, err)
		}
		want["/usr/sbin/"+name] = program
		for _, lib := range Libraries(ctx, program) {
			want[lib] = lib
		}
	}
	return expand(want)
}

// Libraries are the files that a program of this machine needs to run, with the dynamic loader, which knows them. A
// static program needs none.
func Libraries(ctx context.Context, program string) []string {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil
	}
	return parseLibraries(string(out))
}

// parseLibraries reads ldd's lines: "name => /path (address)" or, for the loader itself, "/path (address)".
func parseLibraries(out string) []string {
	var paths []string
	for _, line := range strings.Split(out, "\n") {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				paths = append(paths, word)
			}
		}
	}
	return paths
}

// writeInitrd appends the command and the small files to the base; the kernel unpacks one archive after another.
func writeInitrd(ctx context.Context, dir, path, archive string, spec guest.Spec, small []file) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the initramfs: %w", err)
	}
	stage := filepath.Join(dir, "small")
	if err := errors.Join(put(stage, guest.SpecPath, 0o600, text), copyFiles(stage, small)); err != nil {
		return fmt.Errorf("write the initramfs: %w", err)
	}
	return writeAtomically(path, func(w io.Writer) error {
		return errors.Join(copyFrom(w, archive), pack(ctx, stage, w))
	})
}

// makeDisk writes an ext4 image with the files; mke2fs needs neither privileges nor a loop device for that.
func makeDisk(ctx context.Context, dir, image string, files []file) error {
	stage := filepath.Join(dir, "stage")
	defer os.RemoveAll(stage) //nolint:errcheck // removed with the whole directory otherwise
	total := int64(0)
	for _, f := range files {
		if err := stageFile(filepath.Join(stage, f.target), f); err != nil {
			return fmt.Errorf("make the payload disk: %w", err)
		}
		total += f.size
	}
	// A tenth and 16 MiB more for the file system's own structures.
	size := fmt.Sprintf("%dM", total*11/10>>20+16)
	if err := run(ctx, "", nil, "mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", stage, image,
		size); err != nil {
		return fmt.Errorf("make the payload disk: %w", err)
	}
	return nil
}

// stageFile puts a file where mke2fs picks it up: a hard link where possible, else a copy.
func stageFile(target string, f file) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	source, err := filepath.EvalSymlinks(f.source)
	if err != nil {
		return err
	}
	if os.Link(source, target) == nil {
		return nil
	}
	out, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, f.perm)
	if err != nil {
		return err
	}
	return errors.Join(copyFrom(out, source), out.Close())
}

func copyFrom(w io.Writer, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return errors.Join(err, in.Close())
}
