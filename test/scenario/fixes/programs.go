package fixes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
)

// Programs are the tools that configure a machine's network, taken from Debian's packages.
type Programs struct {
	// Generate is what `netplan generate` runs.
	Generate string
	// Ifup and Ifquery are those of ifupdown.
	Ifup, Ifquery string
	// Nmcli is the command line of NetworkManager.
	Nmcli string
	// Environment lets them find their shared libraries.
	Environment []string
}

// packages hold the programs and those of their libraries that a small machine may lack.
var packages = []string{
	"netplan.io", "libnetplan0", "libglib2.0-0", "libyaml-0-2", "ifupdown", "network-manager", "libnm0", "libreadline8",
}

// Unpack downloads the tools into the cache. They are not installed: each of them would take over the network of the
// machine.
func Unpack(ctx context.Context) (Programs, error) {
	var p Programs
	var libraries []string
	for _, name := range packages {
		root, err := tools.DebianPackage(ctx, name)
		if err != nil {
			return Programs{}, err
		}
		for program, path := range map[*string]string{
			&p.Generate: "usr/libexec/netplan/generate", &p.Ifup: "sbin/ifup", &p.Ifquery: "sbin/ifquery",
			&p.Nmcli: "usr/bin/nmcli",
		} {
			if found := filepath.Join(root, path); *program == "" && exists(found) {
				*program = found
			}
		}
		for _, pattern := range []string{"lib/*-linux-gnu*", "usr/lib/*-linux-gnu*"} {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return Programs{}, err
			}
			libraries = append(libraries, found...)
		}
	}
	if p.Generate == "" || p.Ifup == "" || p.Ifquery == "" || p.Nmcli == "" {
		return Programs{}, fmt.Errorf("the Debian packages %s lack a program: %+v", strings.Join(packages, ", "), p)
	}
	p.Environment = append(os.Environ(), "LC_ALL=C", "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	return p, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
