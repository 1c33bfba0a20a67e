package tools

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDependencyIn(t *testing.T) {
	const control = "Package: linux-image-cloud-amd64\nVersion: 6.1\nPre-Depends: linux-image-no\nDepends: adduser, " +
		"kmod | linux-image-6.1.0-37-cloud-amd64 (= 6.1.140-1), x\nRecommends: linux-image-other\n"
	got, err := dependencyIn(control, "linux-image-")
	if err != nil || got != "linux-image-6.1.0-37-cloud-amd64" {
		t.Errorf("dependencyIn() = %q, %v", got, err)
	}
	_, err = dependencyIn(control, "linux-headers-")
	checkError(t, err, "linux-headers-")
}

func TestFileIn(t *testing.T) {
	for uris, want := range map[string]string{
		"'http://deb.debian.org/debian/pool/k/kernel_1%3a6.1-1_amd64.deb' kernel_1%3a6.1-1_amd64.deb 27 SHA256:ab\n": "kernel_1%3a6.1-1_amd64.deb",
		"'http://h/x.deb' ../../x.deb 1 SHA256:ab": "x.deb",
		"": "", "E: no such package": "",
	} {
		got, err := fileIn(uris)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("fileIn(%q) = %q, %v; want %q", uris, got, err, want)
		}
	}
	if got := unescaped("kernel_1%3a6.1-1_amd64.deb"); got != "kernel_1:6.1-1_amd64.deb" {
		t.Errorf("unescaped() = %q", got)
	}
	if got := unescaped("..%2f..%2fetc.deb"); strings.Contains(got, "/") {
		t.Errorf("unescaped() = %q leaves its directory", got)
	}
}

// TestDebianPackage runs the real apt against an archive on disk.
func TestDebianPackage(t *testing.T) {
	box := &Toolbox{Cache: t.TempDir(), Progress: &lockedWriter{}}
	if !found("apt-get") {
		_, err := box.DebianPackage(t.Context(), "pnap-data")
		checkError(t, err, "run this on Debian")
		return
	}
	archive := t.TempDir()
	box.aptSources = filepath.Join(t.TempDir(), "sources.list")
	writeFile(t, box.aptSources, "deb [trusted=yes] file:"+archive+" ./\n", 0o644)
	index := addPackage(t, archive, "pnap-data", "pnap-data-1.0-cloud (= 1.0)") + addPackage(t, archive,
		"pnap-data-1.0-cloud", "")
	writeFile(t, filepath.Join(archive, "Packages"), index, 0o644)

	name, err := box.DebianDependency(t.Context(), "pnap-data", "pnap-data-")
	if err != nil || name != "pnap-data-1.0-cloud" {
		t.Fatalf("DebianDependency() = %q, %v", name, err)
	}
	dir, err := box.DebianPackage(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "usr/share/pnap-data-1.0-cloud"))
	if err != nil || string(content) != "payload of pnap-data-1.0-cloud\n" {
		t.Errorf("the unpacked file holds %q (%v)", content, err)
	}
	// Without the archive, as without a network, the cache must do.
	if err := os.RemoveAll(archive); err != nil {
		t.Fatal(err)
	}
	again, err := box.DebianPackage(t.Context(), name)
	if err != nil || again != dir {
		t.Errorf("DebianPackage() without the archive = %q, %v; want %q", again, err, dir)
	}
	_, err = box.DebianPackage(t.Context(), "pnap-absent")
	checkError(t, err, "get the Debian package pnap-absent")
	if left, _ := filepath.Glob(filepath.Join(box.Cache, "debian", ".new-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// addPackage builds a package for all architectures and returns its entry of the index file.
func addPackage(t *testing.T, archive, name, depends string) string {
	t.Helper()
	tree := t.TempDir()
	control := "Package: " + name +
		"\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.test>\nDescription: test\n"
	if depends != "" {
		control += "Depends: " + depends + "\n"
	}
	writeFile(t, filepath.Join(tree, "DEBIAN/control"), control, 0o644)
	writeFile(t, filepath.Join(tree, "usr/share", name), "payload of "+name+"\n", 0o644)
	file := filepath.Join(archive, name+"_1.0_all.deb")
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--build", "--root-owner-group", tree,
		file).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v: %s", err, out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, filepath.Base(file), len(content),
		sha256.Sum256(content))
}
