//go:build linux

package machine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPackKeepsContentsAndPermissions(t *testing.T) {
	stage := t.TempDir()
	for name, data := range map[string][]byte{"/etc/a.conf": []byte("hello"),
		"etc/deep/er/b": bytes.Repeat([]byte("x"), 4097)} {
		if err := put(stage, name, 0o640, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/bin/busybox", filepath.Join(stage, "etc/sh")); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := pack(t.Context(), stage, &archive); err != nil {
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
	if link, err := os.Readlink(filepath.Join(dir, "etc/sh")); err != nil || link != "/bin/busybox" {
		t.Errorf("link: %q, %v", link, err)
	}
}

func TestPackReportsAFailedWrite(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	stage := t.TempDir()
	if err := put(stage, "a", 0o600, []byte("b")); err != nil {
		t.Fatal(err)
	}
	if err := pack(t.Context(), stage, full); err == nil || !strings.Contains(err.Error(), "No space left on device") {
		t.Errorf("pack() = %v, want what went wrong", err)
	}
}

func TestResolve(t *testing.T) {
	const listing = "kernel/net/a-b.ko: kernel/b.ko kernel/c.ko\nkernel/b.ko: kernel/c.ko\nkernel/c.ko:\n" +
		"kernel/net/foo-bar.ko.xz:\nalias usb:v1 c\n"
	const builtin = "kernel/fs/ext4.ko\n"
	got, err := resolve("6.12.0", listing, builtin, []string{"a_b", "c", "ext4"})
	if diff := cmp.Diff([]string{"kernel/b.ko", "kernel/c.ko", "kernel/net/a-b.ko"}, got); diff != "" || err != nil {
		t.Errorf("resolve() = %v, with (-want +got):\n%s", err, diff)
	}
	if _, err := resolve("6.12.0", listing, builtin, []string{"foo_bar"}); err == nil ||
		!strings.Contains(err.Error(), "xz -d") {
		t.Errorf("resolve() = %v, want what to do about compression", err)
	}
	if _, err := resolve("6.12.0", listing, builtin, []string{"bonding"}); err == nil ||
		!strings.Contains(err.Error(), "6.12.0 has no module bonding") {
		t.Errorf("resolve() = %v, want which kernel lacks what", err)
	}
}
