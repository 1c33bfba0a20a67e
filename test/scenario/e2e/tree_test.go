//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// nodePackages are the Debian packages, with the files that a node needs of them. A pattern leads to files and to
// links.
var nodePackages = map[string][]string{
	"containerd":                  {"usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"},
	"runc":                        {"usr/sbin/runc"},
	"containernetworking-plugins": {"usr/lib/cni/bridge", "usr/lib/cni/host-local", "usr/lib/cni/loopback"},
	"libseccomp2":                 {"usr/lib/x86_64-linux-gnu/libseccomp.so.2"},
	"libc6":                       {"lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"},
}

// nodeTree puts the programs of a node together below dir: file there → file of this machine, for the lab's files.
func nodeTree(ctx context.Context, dir string) (map[string]string, error) {
	box, err := tools.Default()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, wanted := range nodePackages {
		root, err := box.DebianPackage(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, file := range wanted {
			if files[filepath.Join(dir, nodePath(file))], err = regularFile(filepath.Join(root, file)); err != nil {
				return nil, fmt.Errorf("the Debian package %s: %w", name, err)
			}
		}
	}
	for _, name := range []string{"kubelet", "kubeadm"} {
		if files[filepath.Join(dir, "usr/bin", name)], err = tools.Binary(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := tools.Packages(ctx, "busybox"); err != nil {
		return nil, err
	}
	files[filepath.Join(dir, "bin/busybox")], err = exec.LookPath("busybox")
	return files, err
}

// nodePath is where a file of a package lies on the node, which has the older directories /lib and /lib64 beside /usr.
func nodePath(file string) string {
	if base := filepath.Base(file); strings.HasPrefix(base, "ld-linux") {
		return "lib64/" + base
	}
	return file
}

// regularFile follows links, so that the file itself is handed over under the link's name.
func regularFile(path string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", path)
	}
	return file, nil
}

func TestRegularFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "libx.so.2.5")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("libx.so.2.5", filepath.Join(dir, "libx.so.2")); err != nil {
		t.Fatal(err)
	}
	if got, err := regularFile(filepath.Join(dir, "libx.so.2")); err != nil || filepath.Base(got) != "libx.so.2.5" {
		t.Errorf("regularFile() = %s, %v", got, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none")} {
		if got, err := regularFile(bad); err == nil {
			t.Errorf("regularFile(%s) = %s, want an error", bad, got)
		}
	}
	if got := nodePath("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"); got != "lib64/ld-linux-x86-64.so.2" {
		t.Errorf("the dynamic loader is put at %s", got)
	}
}
