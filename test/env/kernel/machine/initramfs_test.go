//go:build linux

package machine

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestArchiveIsReadByOthers unpacks an archive with a cpio that is not ours.
func TestArchiveIsReadByOthers(t *testing.T) {
	var archive bytes.Buffer
	a := newArchive(&archive)
	a.File("/etc/a.conf", 0o640, []byte("hello"))
	a.File("etc/deep/er/b", 0o755, bytes.Repeat([]byte("x"), 4097))
	a.Symlink("bin/sh", "/bin/busybox")
	a.Directory("etc/deep")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "busybox", "cpio", "-i", "-d")
	cmd.Dir = dir
	cmd.Stdin = &archive
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	for name, want := range map[string]int{"etc/a.conf": 5, "etc/deep/er/b": 4097} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(data) != want {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(data), err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "etc/a.conf")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("permissions of a file: %v, %v, want 0640", info, err)
	}
	if link, err := os.Readlink(filepath.Join(dir, "bin/sh")); err != nil || link != "/bin/busybox" {
		t.Errorf("link: %q, %v", link, err)
	}
}

// brokenDisk fails after some bytes, as a full disk does.
type brokenDisk struct{ room int }

var errFull = errors.New("no space left on device")

func (b *brokenDisk) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestArchiveReportsAFailedWrite(t *testing.T) {
	a := newArchive(&brokenDisk{room: 150})
	a.File("a", 0o600, []byte("b"))
	if err := a.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close() = %v, want %v", err, errFull)
	}
}

func TestParseModinfo(t *testing.T) {
	info := "license=GPL\x00alias=rtnl-link-vlan\x00depends=mrp,garp-x\x00alias=net-pf-1\x00retpoline=Y\x00"
	want := module{Depends: []string{"mrp", "garp_x"}, Aliases: []string{"rtnl-link-vlan", "net-pf-1"}}
	if diff := cmp.Diff(want, parseModinfo([]byte(info))); diff != "" {
		t.Errorf("parseModinfo differs (-want +got):\n%s", diff)
	}
}

// modules is a small tree: a needs b and c, b needs c; d is built in.
func modules(t *testing.T) func(string) (*module, error) {
	t.Helper()
	tree := map[string]*module{
		"a": {Name: "a", Path: "kernel/a.ko", Depends: []string{"b", "c", "d"}, Aliases: []string{"x-*"}},
		"b": {Name: "b", Path: "kernel/b.ko", Depends: []string{"c"}},
		"c": {Name: "c", Path: "kernel/c.ko"},
		"d": nil,
		"e": {Name: "e", Path: "kernel/e.ko", Depends: []string{"missing"}},
	}
	return func(name string) (*module, error) {
		m, ok := tree[name]
		if !ok {
			return nil, errors.New("no module " + name)
		}
		return m, nil
	}
}

func TestClosurePutsDependenciesFirst(t *testing.T) {
	got, err := closure([]string{"a", "c"}, modules(t))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(got))
	for _, m := range got {
		names = append(names, m.Name)
	}
	if diff := cmp.Diff([]string{"c", "b", "a"}, names); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
	if want, got := "kernel/c.ko:\nkernel/b.ko: kernel/c.ko\nkernel/a.ko: kernel/b.ko kernel/c.ko\n", string(
		dependencies(got)); got != want {
		t.Errorf("modules.dep is\n%swant\n%s", got, want)
	}
	if want, got := "alias x-* a\n", string(aliases(got)); got != want {
		t.Errorf("modules.alias is %q, want %q", got, want)
	}
}

func TestClosureNamesWhatIsMissing(t *testing.T) {
	_, err := closure([]string{"e"}, modules(t))
	if err == nil || !strings.Contains(err.Error(), "needed by e") || !strings.Contains(err.Error(), "missing") {
		t.Errorf("closure() = %v, want an error that names both modules", err)
	}
}

func TestCompressedModulesAreRefusedWithTheRemedy(t *testing.T) {
	root := filepath.Join(t.TempDir(), "6.12.0")
	if err := os.MkdirAll(filepath.Join(root, "kernel/net"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kernel/net/foo-bar.ko.xz": "compressed",
		"modules.builtin": "kernel/fs/ext4.ko\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x, err := openIndex(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.resolve("foo_bar"); err == nil || !strings.Contains(err.Error(), "xz -d") {
		t.Errorf("resolve() = %v, want what to do about compression", err)
	}
	if got, err := x.resolve("ext4"); err != nil || len(got) != 0 {
		t.Errorf("resolve() = %v, %v for what is built in, want nothing to load", got, err)
	}
	if _, err := x.resolve("bonding"); err == nil || !strings.Contains(err.Error(), "6.12.0 has no module bonding") {
		t.Errorf("resolve() = %v, want which kernel lacks what", err)
	}
}
