//go:build linux

package networkd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// By these variables the machine finds ifupdown2 and what Python needs for it.
const (
	ifupdown2  = "PNAP_IFUPDOWN2"
	pythonHome = "PNAP_PYTHONHOME"
	pythonPath = "PNAP_PYTHONPATH"
)

// hypervisorInterfaces is written by hand in the form of the installer and the web interface of Proxmox VE, of which no
// package can be had here: a server with a bond, in a mode that needs no switch, and the addresses of these tests. The
// VLAN interface stands in it, too, where a person made it there.
const (
	hypervisorInterfaces = `auto lo
iface lo inet loopback

iface eno1 inet manual

iface eno2 inet manual

auto bond0
iface bond0 inet manual
	bond-slaves eno1 eno2
	bond-miimon 50
	bond-mode active-backup
	mtu 9000

auto vmbr0
iface vmbr0 inet static
	address 10.0.0.2/24
	bridge-ports bond0
	bridge-stp off
	bridge-fd 0
	mtu 9000
	up ip route add 10.1.0.0/16 via 10.0.0.1
%s
source /etc/network/interfaces.d/*
`
	hypervisorVLAN = `
auto vmbr0.100
iface vmbr0.100 inet static
	address 192.0.2.2/28
	gateway 192.0.2.1
	mtu 1500
`
)

// onBridge changes a fault of a bond's VLAN interface into that of the bridge's.
var onBridge = strings.NewReplacer("bond0.100", "vmbr0.100", "dev bond0", "dev vmbr0", "link bond0", "link vmbr0")

// serveHypervisor sets up the network of a server by ifupdown2, as the service networking of Proxmox VE does.
func serveHypervisor(t *testing.T, public string) *service {
	t.Helper()
	const programs = "/usr/local/sbin"
	empty(t, "/etc/network", "/run/network", programs, "/var/tmp")
	t.Setenv("PATH", programs+":"+os.Getenv("PATH")) // before those of ifupdown
	package2 := os.Getenv(ifupdown2)
	for _, program := range []string{"ifup", "ifdown", "ifquery", "ifreload"} {
		link := filepath.Join("/run/network", program) // by its name the program knows what to do
		must(t, "link "+program, os.Symlink(filepath.Join(package2, "usr/share/ifupdown2/__main__.py"), link))
		must(t, "write "+program, os.WriteFile(filepath.Join(programs, program), fmt.Appendf(nil,
			"#!/bin/sh\nPYTHONHOME=%s PYTHONPATH=%s exec python3.11 -S %s \"$@\"\n", os.Getenv(pythonHome),
			os.Getenv(pythonPath), link), 0o755))
	}
	replaceApplet(t, "/bin/sh", "dash")
	replaceApplet(t, "/bin/ip", "ip")
	must(t, "copy the configuration", os.CopyFS("/etc/network", os.DirFS(filepath.Join(package2, "etc/network"))))
	s := &service{tool: check.Ifupdown, lacks: hypervisorLacks, t: t, rename: onBridge, endsAgain: true,
		again: func(t *testing.T) {
			t.Helper()
			shell(t, "ifdown -a --exclude=lo; ifup -a")
		}}
	shell(t, hardware)
	follow(t, []check.Fix{{File: "/etc/network/interfaces", Content: fmt.Sprintf(hypervisorInterfaces, public),
		Commands: []string{"mkdir -p /etc/network/interfaces.d", "ifup -a"}}})
	if what := hypervisorLacks(t); what != "" {
		t.Fatalf("ifupdown2 did not set up %s", what)
	}
	return s
}

// hypervisorLacks is what the server's own bridge lacks.
func hypervisorLacks(t *testing.T) string {
	t.Helper()
	bridge := find(t, "vmbr0").Attrs()
	switch {
	case find(t, "bond0").Attrs().MasterIndex != bridge.Index:
		return "the bond in the bridge"
	case bridge.MTU != 9000:
		return "the MTU of vmbr0"
	case !has(t, "vmbr0", "10.0.0.2/24"):
		return "the address of vmbr0"
	}
	return ""
}

// TestHypervisorFixesInTurn follows what findings print for ifupdown, which ifupdown2 runs, on a server whose VLAN
// interface is on the bridge of a hypervisor.
func TestHypervisorFixesInTurn(t *testing.T) {
	inTurn(t, "hypervisor", 1,
		func(t *testing.T) *service {
			enter(t)
			return serveHypervisor(t, hypervisorVLAN)
		},
		func(t *testing.T) *service {
			enter(t)
			return serveHypervisor(t, "")
		})
}

// TestManagedHypervisor: an agent that manages the interface makes it, on the bridge. Its goroutines need the namespace
// of the machine.
func TestManagedHypervisor(t *testing.T) {
	t.Cleanup(func() {
		must(t, "take the hardware away", exec.Command("dash", "-ec", tidy+"ip link delete vmbr0").Run())
	})
	s := serveHypervisor(t, "")
	keep(t)
	await(t, "an interface on the bridge", func() bool { return findings(t).Interface == "vmbr0.100" })
	await(t, "its address", func() bool { return has(t, "vmbr0.100", "192.0.2.2/28") })
	if what := s.lacks(t); what != "" {
		t.Errorf("beside the agent the server lost %s", what)
	}
}
