package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
)

// packages are the Debian packages, with the files that a node needs of them. A pattern leads to files and to links.
var packages = map[string][]string{
	"containerd":                  {"usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"},
	"runc":                        {"usr/sbin/runc"},
	"containernetworking-plugins": {"usr/lib/cni/bridge", "usr/lib/cni/host-local", "usr/lib/cni/loopback"},
	"libseccomp2":                 {"usr/lib/x86_64-linux-gnu/libseccomp.so.2"},
	"libc6":                       {"lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"},
}

// Tree puts the programs of a node together below dir: file there → file of this machine, for the lab's files.
func Tree(ctx context.Context, dir string) (map[string]string, error) {
	box, err := tools.Default()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, wanted := range packages {
		root, err := box.DebianPackage(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, file := range wanted {
			if files[filepath.Join(dir, target(file))], err = resolve(filepath.Join(root, file)); err != nil {
				return nil, fmt.Errorf("the Debian package %s: %w", name, err)
			}
		}
	}
	if files[filepath.Join(dir, "usr/bin/kubelet")], err = tools.Binary(ctx, "kubelet"); err != nil {
		return nil, err
	}
	if err := tools.Packages(ctx, "busybox"); err != nil {
		return nil, err
	}
	files[filepath.Join(dir, "bin/busybox")], err = exec.LookPath("busybox")
	return files, err
}

// target is where a file of a package lies on the node, which has the older directories /lib and /lib64 beside /usr.
func target(file string) string {
	if base := filepath.Base(file); strings.HasPrefix(base, "ld-linux") {
		return "lib64/" + base
	}
	return file
}

// resolve follows links, so that the file itself is handed over under the link's name.
func resolve(path string) (string, error) {
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
