package tools

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// packages are the Debian packages of programs where their name is another one.
var packages = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs", "nft": "nftables", "busybox": "busybox-static",
	"ip": "iproute2", "bridge": "iproute2", "tc": "iproute2", "setpriv": "util-linux", "dpkg-deb": "dpkg",
	"script": "bsdutils", "nc.openbsd": "netcat-openbsd", "stty": "coreutils",
	"systemd-networkd": "systemd", "networkctl": "systemd", "dbus-daemon": "dbus",
	"iptables-save": "iptables", "iptables-restore": "iptables",
}

// packageOf returns the Debian package that holds a program.
func packageOf(program string) string { return cmp.Or(packages[program], program) }

// Packages makes sure that programs of the system, such as qemu-system-x86_64, mke2fs, nft and busybox (which must
// be static), are there. What is missing is installed with apt-get, by root or by sudo where that asks for no
// password; it says so before. Elsewhere the error names what to install.
func (b *Toolbox) Packages(ctx context.Context, programs ...string) error {
	missing := missingPackages(programs)
	if len(missing) == 0 {
		return nil
	}
	release, err := b.lock(ctx, "packages")
	if err != nil {
		return err
	}
	defer release()
	if missing = missingPackages(programs); len(missing) == 0 {
		return nil
	}
	prefix, err := installer(missing, os.Geteuid(), found("apt-get"), sudoWorks(ctx))
	if err != nil {
		return err
	}
	b.say("installing %s with %s", strings.Join(missing, ", "),
		strings.Join(append(slices.Clone(prefix), "apt-get"), " "))
	if err := install(ctx, prefix, missing); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, ", "), err)
	}
	if missing = missingPackages(programs); len(missing) > 0 {
		return fmt.Errorf("%s was installed, but its programs are still not found in PATH: install %s by hand",
			strings.Join(missing, ", "), strings.Join(missing, ", "))
	}
	return nil
}

// Program returns the path of a program of the system. Unlike exec.LookPath it looks in the system directories
// too, which PATH lacks for ordinary users on Debian.
func Program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s in PATH: install the package %s (on Debian: apt-get install %s)", name,
		packageOf(name), packageOf(name))
}

// IPTablesExtensions returns the directory of the modules of iptables, which is installed if it is missing. iptables
// looks for them in $XTABLES_LIBDIR first.
func IPTablesExtensions(ctx context.Context) (string, error) {
	if err := Packages(ctx, "iptables"); err != nil {
		return "", err
	}
	for _, pattern := range []string{"/usr/lib/*/xtables", "/usr/lib/xtables", "/lib/xtables"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("iptables is installed, but its directory xtables is not found below /usr/lib")
}

// missingPackages returns the packages of those programs that are not there, each once, in order.
func missingPackages(programs []string) []string {
	var missing []string
	for _, program := range programs {
		if !usable(program) && !slices.Contains(missing, packageOf(program)) {
			missing = append(missing, packageOf(program))
		}
	}
	return missing
}

// usable reports whether a program exists in the form that is needed.
func usable(program string) bool {
	path, err := Program(program)
	if err != nil {
		return false
	}
	return program != "busybox" || IsStatic(path)
}

// IsStatic reports whether a program needs no interpreter, so that it runs where there are no shared libraries.
func IsStatic(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	return !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// installer returns what to put before apt-get, or an error that names what the user has to do.
func installer(packages []string, euid int, apt, sudo bool) ([]string, error) {
	names := strings.Join(packages, " ")
	switch {
	case !apt:
		return nil,
			fmt.Errorf("missing programs of the Debian packages %s, and there is no apt-get here: install them with "+
				"the package manager of this system", names)
	case euid == 0:
		return nil, nil
	case sudo:
		return []string{"sudo", "-n"}, nil
	default:
		return nil,
			fmt.Errorf("missing packages %s, and installing them needs root: run apt-get install %s as root once",
				names, names)
	}
}

func found(program string) bool {
	_, err := Program(program)
	return err == nil
}

// sudoWorks reports whether sudo works without a password.
func sudoWorks(ctx context.Context) bool {
	return found("sudo") && exec.CommandContext(ctx, "sudo", "-n", "true").Run() == nil
}

// install updates the package lists and installs packages, waiting for another package manager to finish.
func install(ctx context.Context, prefix, packages []string) error {
	lock := []string{"-q", "-o", "DPkg::Lock::Timeout=300"}
	for _, args := range [][]string{
		slices.Concat([]string{"update"}, lock),
		slices.Concat([]string{"install", "-y", "--no-install-recommends"}, lock, packages),
	} {
		// sudo drops the caller's environment, so env sets it behind sudo.
		argv := slices.Concat(prefix, []string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get"}, args)
		if _, err := output(ctx, "", argv...); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program in dir and returns what it printed; its complaint becomes the error's text.
func output(ctx context.Context, dir string, argv ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if err := subprocess.Run(cmd); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("no %s in PATH: this needs Debian or a system derived from it", argv[0])
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), cmp.Or(context.Cause(ctx), err),
			lastLines(stderr.String(), 5))
	}
	return stdout.String(), nil
}
