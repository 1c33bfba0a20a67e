// Package fixes gives the files and commands that the agent prints to the real tools that configure a machine's
// network.
package fixes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Candidate is what a user does about a finding, or by a guide, with one tool.
type Candidate struct {
	Name  string
	Fixes []check.Fix
}

var (
	recipe  = regexp.MustCompile("(?s)<!-- begin ([a-z-]+): written by make docs -->\n(.*?)<!-- end ")
	written = regexp.MustCompile("(?s)Write to `([^`]+)`:\n\n```\n(.*?)```\n")
	typed   = regexp.MustCompile("(?s)```sh\n(.*?)\n```\n")
)

// Guide returns the recipes for a tool of the guide to the VLAN interface, as they stand on the page: first the files,
// then the commands. root is that of the source tree.
func Guide(root string, tool check.Tool) ([]Candidate, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "guides", "network.md"))
	if err != nil {
		return nil, fmt.Errorf("read the guide: %w", err)
	}
	var found []Candidate
	for _, match := range recipe.FindAllStringSubmatch(string(page), -1) {
		if !strings.HasSuffix(match[1], "-"+string(tool)) {
			continue
		}
		c := Candidate{Name: "guide " + match[1]}
		for _, file := range written.FindAllStringSubmatch(match[2], -1) {
			c.Fixes = append(c.Fixes, check.Fix{Tool: tool, File: file[1], Content: file[2]})
		}
		for _, commands := range typed.FindAllStringSubmatch(match[2], -1) {
			c.Fixes = append(c.Fixes, check.Fix{Tool: tool, Commands: strings.Split(commands[1], "\n")})
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the guide has no recipe for %s", tool)
	}
	return found, nil
}

// Installer is the file of netplan in phoenixNAP's image: two ports in a bond with LACP, the server's address and the
// way to the Internet on the bond, a private network beside it.
const Installer = `network:
  version: 2
  ethernets:
    eno1: {match: {macaddress: "02:00:00:00:00:01"}, set-name: eno1, mtu: 9000}
    eno2: {match: {macaddress: "02:00:00:00:00:02"}, set-name: eno2, mtu: 9000}
  bonds:
    bond0:
      interfaces: [eno1, eno2]
      mtu: 9000
      parameters: {mode: 802.3ad, mii-monitor-interval: 100, transmit-hash-policy: layer3+4, lacp-rate: fast}
      addresses: [198.51.100.10/29]
      routes: [{to: default, via: 198.51.100.9}]
      nameservers: {addresses: [198.51.100.1]}
  vlans:
    bond0.11: {id: 11, link: bond0, mtu: 9000, addresses: [10.0.0.11/24]}
`

// Programs are the tools that configure a machine's network, taken from Debian's packages.
type Programs struct {
	// Generate is what `netplan generate` runs.
	Generate string
	// Ifup and Ifquery are those of ifupdown, whose other programs stand beside them.
	Ifup, Ifquery string
	// Hooks is the directory of the scripts by which ifupdown makes a bond (the package ifenslave).
	Hooks string
	// Ifupdown2 is the root of that package. PythonHome and PythonPath are what its Python needs in the variables of
	// these names.
	Ifupdown2, Python, PythonHome, PythonPath string
	// Nmcli is the command line of NetworkManager, the daemon.
	Nmcli, NetworkManager string
	// Libraries are the directories of their shared libraries, as in LD_LIBRARY_PATH.
	Libraries string
	// Environment lets them find their shared libraries.
	Environment []string
}

// packages hold the programs and those of their libraries that a small machine may lack.
var packages = []string{
	"netplan.io", "libnetplan0", "libglib2.0-0", "libyaml-0-2", "ifupdown", "ifenslave", "network-manager", "libnm0",
	"libndp0", "libreadline8", "ifupdown2", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib",
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
			&p.Nmcli: "usr/bin/nmcli", &p.NetworkManager: "usr/sbin/NetworkManager",
			&p.Hooks: "etc/network/if-pre-up.d/ifenslave", &p.Ifupdown2: "usr/share/ifupdown2/__main__.py",
			&p.Python: "usr/bin/python3.11", &p.PythonHome: "usr/lib/python3.11/os.py",
			&p.PythonPath: "usr/lib/python3.11/json/__init__.py",
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
	if slices.Contains([]string{p.Generate, p.Ifup, p.Ifquery, p.Nmcli, p.NetworkManager, p.Hooks, p.Ifupdown2,
		p.Python, p.PythonHome, p.PythonPath}, "") {
		return Programs{}, fmt.Errorf("the Debian packages %s lack a program: %+v", strings.Join(packages, ", "), p)
	}
	p.Hooks = filepath.Dir(filepath.Dir(p.Hooks))
	p.Ifupdown2 = rootOf(p.Ifupdown2)
	modules := []string{filepath.Dir(p.PythonHome), filepath.Dir(filepath.Dir(p.PythonPath))}
	p.PythonHome = filepath.Join(rootOf(p.PythonHome), "usr")
	p.PythonPath = strings.Join(append(modules, filepath.Join(modules[1], "lib-dynload")), ":")
	p.Libraries = strings.Join(libraries, ":")
	p.Environment = append(os.Environ(), "LC_ALL=C", "LD_LIBRARY_PATH="+p.Libraries)
	return p, nil
}

// rootOf is the directory into which a package with a file below /usr was unpacked.
func rootOf(path string) string { return path[:max(strings.LastIndex(path, "/usr/"), 0)] }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
