//go:build linux

package networkd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// Files of ifupdown: of a server with a bond, and the VLAN interface in the same file. Without a metric, ifupdown could
// not add its default route beside the one that a fault has added.
const (
	sourceLine       = "source /etc/network/interfaces.d/*\n"
	uplinkInterfaces = `auto lo
iface lo inet loopback
auto bond0
iface bond0 inet static
  address 10.0.0.2/24
  mtu 9000
  bond-slaves eno1 eno2
  bond-mode active-backup
  bond-miimon 50
  up ip route add 10.1.0.0/16 via 10.0.0.1
`
	publicInterfaces = `auto bond0.100
iface bond0.100 inet static
  address 192.0.2.2/28
  gateway 192.0.2.1
  metric 50
  mtu 1500
`
	jumboInterfaces = `auto bond0.100
iface bond0.100 inet static
  address 192.0.2.2/28
  mtu 9000
`
)

// serveIfupdown sets up the network of a server by ifupdown, as its service networking does. The hook of the package
// ifenslave makes the bond; the package vlan is not installed, for ifupdown makes VLAN interfaces by itself.
func serveIfupdown(t *testing.T, interfaces string) *service {
	t.Helper()
	enter(t)
	const directory = "/etc/network"
	const programs = "/usr/local/sbin" // ifup looks for programs there first, whatever PATH is
	empty(t, directory, "/run/network", programs)
	for _, program := range []string{"ifup", "ifdown", "ifquery", "ip"} {
		found, err := exec.LookPath(program)
		must(t, "find "+program, err)
		must(t, "link "+program, os.Symlink(found, filepath.Join(programs, program)))
	}
	replaceApplet(t, "/bin/sh", "dash")
	must(t, "copy the hooks", os.CopyFS(directory, os.DirFS(os.Getenv(hooks))))
	s := &service{tool: check.Ifupdown, lacks: uplinkLacks, t: t, endsAgain: true, again: func(t *testing.T) {
		t.Helper()
		shell(t, "ifdown -a --exclude=lo; ifup -a") // as networking.service does
	}}
	shell(t, hardware)
	follow(t, []check.Fix{{File: directory + "/interfaces", Content: interfaces,
		Commands: []string{"mkdir -p /etc/network/interfaces.d", "ifup -a"}}})
	if what := uplinkLacks(t); what != "" {
		t.Fatalf("ifupdown did not set up %s", what)
	}
	return s
}

// replaceApplet puts a program in the place of one that is a part of busybox in the machine. Its shell runs programs of
// its own before those of the PATH, and its ip lacks options.
func replaceApplet(t *testing.T, path, program string) {
	t.Helper()
	_, noMachine := os.Stat("/init")
	if target, err := os.Readlink(path); err != nil || target != "/bin/busybox" || noMachine != nil {
		return
	}
	found, err := exec.LookPath(program)
	must(t, "find "+program, err)
	must(t, "remove "+path, os.Remove(path))
	must(t, "link "+program, os.Symlink(found, path))
}

// TestIfupdownFixesInTurn follows what findings print for ifupdown.
func TestIfupdownFixesInTurn(t *testing.T) {
	inTurn(t, "ifupdown_kernel", 2,
		func(t *testing.T) *service { return serveIfupdown(t, sourceLine+uplinkInterfaces+publicInterfaces) },
		func(t *testing.T) *service { return serveIfupdown(t, sourceLine+uplinkInterfaces) })
}

// TestIfupdownFixesOfOwnFile: a user's own section, behind ours or before them, has the MTU of the bond.
func TestIfupdownFixesOfOwnFile(t *testing.T) {
	for name, interfaces := range map[string]string{
		"behind": sourceLine + uplinkInterfaces + jumboInterfaces, "before": uplinkInterfaces + jumboInterfaces + sourceLine,
	} {
		t.Run(name, func(t *testing.T) {
			s := serveIfupdown(t, interfaces)
			s.repairAll("UnusualMTU")
			s.again(t)
			if rest := bad(findings(t)); len(rest) > 0 {
				t.Errorf("after a new start there is %q", rest)
			}
		})
	}
}
