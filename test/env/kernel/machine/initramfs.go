//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
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

// texts are files with a content that is the same everywhere.
var texts = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\n",
	"etc/group":         "root:x:0:\n",
	"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"etc/nsswitch.conf": "hosts: files\n",
	"etc/protocols":     protocols,
}

// write puts the root file system together and packs it. Large files and the command to run come in further archives
// or on a disk.
func (r rootFS) write(ctx context.Context, w io.Writer) error {
	version := filepath.Base(r.Modules)
	tree := filepath.Join("lib/modules", version)
	var listing strings.Builder
	// The package need not have been installed: modules.dep, which depmod makes then, is not there.
	err := run(ctx, "", &listing, "busybox", "depmod", "-n", "-b", strings.TrimSuffix(r.Modules, tree), version)
	if err != nil {
		return fmt.Errorf("list the modules of %s: %w", r.Modules, err)
	}
	built, err := os.ReadFile(filepath.Join(r.Modules, "modules.builtin"))
	if err != nil {
		return fmt.Errorf("list the built-in modules of %s: %w", r.Modules, err)
	}
	modules, err := resolve(version, listing.String(), string(built), r.Wanted)
	if err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "pnap-initramfs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage) //nolint:errcheck // the temporary directory belongs to the system from here on
	files := []file{
		{target: "bin/busybox", source: r.Busybox, perm: 0o755}, {target: "init", source: r.Init, perm: 0o755},
	}
	for _, name := range append(modules, "modules.order", "modules.builtin", "modules.builtin.modinfo") {
		files = append(files,
			file{target: filepath.Join(tree, name), source: filepath.Join(r.Modules, name), perm: 0o644})
	}
	if err := errors.Join(skeleton(stage), copyFiles(stage, files)); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	if err := run(ctx, "", nil, "busybox", "depmod", "-b", stage, version); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	return pack(ctx, stage, w)
}

// skeleton makes the directories, files and links that depend on nothing.
func skeleton(stage string) error {
	for _, d := range directories {
		if err := os.MkdirAll(filepath.Join(stage, d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range texts {
		if err := put(stage, name, 0o644, []byte(text)); err != nil {
			return err
		}
	}
	// The kernel calls modprobe to load a module on demand.
	return errors.Join(os.Symlink("/bin/busybox", filepath.Join(stage, "sbin/modprobe")),
		os.Symlink("/run", filepath.Join(stage, "var/run")))
}

// put writes a file and makes the directories above it.
func put(stage, name string, perm fs.FileMode, data []byte) error {
	target := filepath.Join(stage, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(target, data, perm); err != nil {
		return err
	}
	return os.Chmod(target, perm) // whatever the umask is
}

// copyFiles puts copies of files of the host below a directory.
func copyFiles(stage string, files []file) error {
	for _, f := range files {
		data, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		if err := put(stage, f.target, f.perm, data); err != nil {
			return err
		}
	}
	return nil
}

// pack writes what is below a directory as a cpio archive in the "newc" format, the one that the kernel unpacks into
// its first root (Documentation/driver-api/early-userspace/buffer-format.rst). Archives may be concatenated.
func pack(ctx context.Context, stage string, w io.Writer) error {
	return run(ctx, stage, w, "busybox", "sh", "-c", "find . ! -name . | busybox cpio -o -H newc -R 0:0")
}

// run runs a program in a directory; its complaint becomes the error's text.
func run(ctx context.Context, dir string, out io.Writer, argv ...string) error {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Stdout = out
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// resolve returns the paths of the wanted modules with all that they depend on. listing has the lines of modules.dep,
// builtin those of modules.builtin.
func resolve(version, listing, builtin string, wanted []string) ([]string, error) {
	paths := map[string][]string{} // of a module and of all that it needs, by its name; none where it is built in
	for _, line := range strings.Fields(builtin) {
		paths[moduleName(line)] = nil
	}
	for line := range strings.Lines(listing) {
		if path, needs, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(path, "kernel/") {
			paths[moduleName(path)] = append(strings.Fields(needs), path)
		}
	}
	all := sets.New[string]()
	for _, name := range wanted {
		found, ok := paths[name]
		if !ok {
			return nil, fmt.Errorf("kernel %s has no module %s: choose a kernel package that has it", version, name)
		}
		all.Insert(found...)
	}
	for path := range all {
		if !strings.HasSuffix(path, ".ko") {
			return nil, fmt.Errorf("kernel module %s is compressed: unpack the modules of %s (xz -d or zstd -d) "+
				"before use", path, version)
		}
	}
	return sets.List(all), nil
}

// moduleName is the name of the module in a file: kernel/net/xt-foo.ko.xz is xt_foo.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
