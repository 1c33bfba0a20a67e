//go:build linux

package networkd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/fixes"
)

const (
	// profilesVariable names the directory of the profiles that cloud-init wrote.
	profilesVariable = "PNAP_CLOUD_INIT_PROFILES"
	profiles         = "/etc/NetworkManager/system-connections"
	bondProfile      = "cloud-init-bond0.nmconnection"
	vlanProfile      = "cloud-init-bond0.100.nmconnection"
)

// profileMTU is what cloud-init leaves out of the profiles of a bond and a VLAN interface.
var profileMTU = map[string]int{bondProfile: 9000, vlanProfile: 1500}

// serverForCloudInit is what a provider gives cloud-init for a server of these tests.
const serverForCloudInit = `version: 1
config:
  - {type: physical, name: eno1, mac_address: "02:00:00:00:00:01", mtu: 9000}
  - {type: physical, name: eno2, mac_address: "02:00:00:00:00:02", mtu: 9000}
  - type: bond
    name: bond0
    bond_interfaces: [eno1, eno2]
    params: {bond-mode: active-backup, bond-miimon: 50}
    subnets:
      - type: static
        address: 10.0.0.2/24
        routes: [{network: 10.1.0.0, netmask: 255.255.0.0, gateway: 10.0.0.1}]
  - type: vlan
    name: bond0.100
    vlan_link: bond0
    vlan_id: 100
    mtu: 1500
    subnets: [{type: static, address: 192.0.2.2/28, gateway: 192.0.2.1}]
`

// writeProfiles lets cloud-init write the profiles before the machine starts, which has no Python. It returns their
// directory.
func writeProfiles() (string, error) {
	if found := os.Getenv(profilesVariable); found != "" {
		return found, nil // in the machine
	}
	files, err := fixes.CloudInit(context.Background(), serverForCloudInit, fixes.NetworkManagerFiles)
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "profiles-")
	if err != nil {
		return "", err
	}
	for path, content := range files {
		if filepath.Dir(path) == profiles {
			if err := os.WriteFile(filepath.Join(directory, filepath.Base(path)), []byte(content), 0o600); err != nil {
				return "", err
			}
		}
	}
	return directory, os.Setenv(profilesVariable, directory)
}

// serveNetworkManager starts NetworkManager on a server with the profiles that cloud-init wrote, edited and less some.
func serveNetworkManager(t *testing.T, edit *strings.Replacer, without ...string) *service {
	t.Helper()
	enter(t)
	t.Setenv("LD_LIBRARY_PATH", os.Getenv(libraries))
	bus(t)
	empty(t, "/etc/NetworkManager", "/run/NetworkManager", "/var/lib/NetworkManager")
	// As in a container, where NetworkManager waits for no udev; it sets the options of a bond below /sys/devices.
	must(t, "keep the devices writable", unix.Mount("/sys/devices", "/sys/devices", "", unix.MS_BIND, ""))
	must(t, "make /sys read-only", unix.Mount("", "/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	must(t, "configure", os.WriteFile("/etc/NetworkManager/NetworkManager.conf", []byte(
		"[main]\nplugins=keyfile\nno-auto-default=*\ndns=none\nhostname-mode=none\nauth-polkit=false\n"), 0o600))
	copyProfiles(t, edit, without)
	s := &service{tool: check.NetworkManager, lacks: profilesLack, t: t, endsAgain: true, output: &bytes.Buffer{}}
	s.again = func(t *testing.T) {
		t.Helper()
		s.stop()
		shell(t, tidy)
		s.startNetworkManager()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("NetworkManager says:\n%s", s.output)
		}
	})
	s.startNetworkManager()
	await(t, "the bond", func() bool { return s.lacks(t) == "" })
	return s
}

// copyProfiles puts the profiles where NetworkManager reads them, which takes none that others may read.
func copyProfiles(t *testing.T, edit *strings.Replacer, without []string) {
	t.Helper()
	must(t, "make "+profiles, os.MkdirAll(profiles, 0o700))
	written, err := filepath.Glob(filepath.Join(os.Getenv(profilesVariable), "*"))
	must(t, "list the profiles", err)
	for _, path := range written {
		if slices.Contains(without, filepath.Base(path)) {
			continue
		}
		content, err := os.ReadFile(path)
		must(t, "read a profile", err)
		if mtu := profileMTU[filepath.Base(path)]; mtu > 0 {
			content = fmt.Appendf(content, "\n[ethernet]\nmtu=%d\n", mtu)
		}
		must(t, "write a profile", os.WriteFile(filepath.Join(profiles, filepath.Base(path)),
			[]byte(edit.Replace(string(content))), 0o600))
	}
}

// startNetworkManager starts it on the hardware, and waits until it has set up what it has profiles for.
func (s *service) startNetworkManager() {
	s.t.Helper()
	shell(s.t, hardware+"ip link set eno1 address 02:00:00:00:00:01\nip link set eno2 address 02:00:00:00:00:02\n")
	s.cmd = exec.Command("NetworkManager", "--debug")
	s.cmd.Stdout = s.output
	s.cmd.Stderr = s.output
	must(s.t, "start NetworkManager", s.cmd.Start())
	s.t.Cleanup(s.stop)
	await(s.t, "NetworkManager", func() bool {
		out, err := exec.CommandContext(s.t.Context(), "nmcli", "-g", "STARTUP", "general").Output()
		return err == nil && string(out) == "started\n"
	})
}

// profilesLack is what the server lacks of what its profiles give it; the VLAN interface has at most one.
func profilesLack(t *testing.T) string {
	t.Helper()
	if _, err := netlink.LinkByName("bond0"); err != nil {
		return "bond0"
	}
	if what := uplinkLacks(t); what != "" {
		return what
	}
	if found := profilesOf(t, "bond0.100"); len(found) > 1 {
		return fmt.Sprintf("a single profile of bond0.100: there are %q", found)
	}
	return ""
}

// profilesOf are the profiles of an interface that are in files.
func profilesOf(t *testing.T, name string) []string {
	t.Helper()
	all, err := filepath.Glob(profiles + "/*")
	must(t, "list the profiles", err)
	return slices.DeleteFunc(all, func(path string) bool {
		text, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(text), "\ninterface-name="+name+"\n")
	})
}

// TestNetworkManagerFixesInTurn follows what findings print for NetworkManager: with the profiles of cloud-init, and
// where a person made the VLAN interface by hand.
func TestNetworkManagerFixesInTurn(t *testing.T) {
	inTurn(t, "networkmanager", 1, // its daemon takes long to start
		func(t *testing.T) *service { return serveNetworkManager(t, strings.NewReplacer()) },
		func(t *testing.T) *service { return serveNetworkManager(t, strings.NewReplacer(), vlanProfile) })
}
