package fixes

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// cloudInitPackages are cloud-init and the modules of Python that it imports.
var cloudInitPackages = []string{
	"cloud-init", "python3-yaml", "python3-requests", "python3-urllib3", "python3-six", "python3-charset-normalizer",
	"python3-idna", "python3-certifi", "python3-configobj", "python3-jsonpatch", "python3-json-pointer",
}

// The renderers of cloud-init whose files are read by the tools that fixes are written for.
const (
	NetworkManagerFiles = "network-manager"
	NetplanFiles        = "netplan"
	InterfacesFiles     = "eni"
)

// CloudInit returns the files, by their paths from "/", in which cloud-init writes a network configuration (its
// versions 1 and 2) for a renderer. It is the program of the Debian package cloud-init, which is not installed.
func CloudInit(ctx context.Context, configuration, renderer string) (map[string]string, error) {
	directory, err := os.MkdirTemp("", "cloud-init-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory) //nolint:errcheck // a directory for temporary files
	source := filepath.Join(directory, "network-config")
	if err := os.WriteFile(source, []byte(configuration), 0o600); err != nil {
		return nil, err
	}
	target := filepath.Join(directory, "root")
	if _, err := cloudInit(ctx, "devel", "net-convert", "--network-data", source, "--kind", "yaml", "--directory",
		target, "--distro", "debian", "--output-kind", renderer); err != nil {
		return nil, err
	}
	return filesBelow(target)
}

// CloudInitVersion is the version of the program.
func CloudInitVersion(ctx context.Context) (string, error) {
	out, err := cloudInit(ctx, "--version")
	fields := strings.Fields(out)
	if err != nil || len(fields) == 0 {
		return "", cmp.Or(err, fmt.Errorf("cloud-init names no version: %q", out))
	}
	return fields[len(fields)-1], nil
}

// cloudInit runs the program and returns what it prints.
func cloudInit(ctx context.Context, arguments ...string) (string, error) {
	var modules []string
	for _, name := range cloudInitPackages {
		root, err := tools.DebianPackage(ctx, name)
		if err != nil {
			return "", err
		}
		modules = append(modules, filepath.Join(root, "usr/lib/python3/dist-packages"))
	}
	if err := tools.Packages(ctx, "python3"); err != nil {
		return "", err
	}
	python, err := tools.Program("python3")
	if err != nil {
		return "", err
	}
	// -S: no module of this machine takes the place of one of the packages.
	cmd := exec.CommandContext(ctx, python,
		append([]string{"-S", "-W", "ignore", "-m", "cloudinit.cmd.main"}, arguments...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PYTHONPATH="+strings.Join(modules, ":"))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cloud-init %s: %w: %s", strings.Join(arguments, " "), err, complaint.String())
	}
	return string(out), nil
}

func filesBelow(directory string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, directory)] = string(text)
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("cloud-init wrote no files")
	}
	return files, err
}
