//go:build linux

package networkd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/fixes"
)

// By these variables the machine finds the libraries of netplan and the hooks of ifupdown.
const (
	libraries = "PNAP_NETPLAN_LIBRARIES"
	hooks     = "PNAP_IFUPDOWN_HOOKS"
)

// unpack puts what `netplan generate` runs, and other programs, first in the PATH. They stand in Debian's packages and
// are not installed.
func unpack() error {
	if os.Getenv(libraries) != "" {
		return nil // in the machine
	}
	p, err := fixes.Unpack(context.Background())
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"PATH": strings.Join([]string{filepath.Dir(p.Generate), filepath.Dir(p.Ifup), filepath.Dir(p.Nmcli),
			filepath.Dir(p.NetworkManager), filepath.Dir(p.Python), os.Getenv("PATH")}, ":"),
		libraries: p.Libraries, hooks: p.Hooks,
		ifupdown2: p.Ifupdown2, pythonHome: p.PythonHome, pythonPath: p.PythonPath,
		// By it the machine finds which files it needs.
		"LD_LIBRARY_PATH": p.Libraries,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// netplan stands for the command line of netplan, which is a program in Python: the generator is the real one, and
// `apply` does what the real one does for networkd (netplan/cli/commands/apply.py of netplan 0.106): generate, reload,
// and reconfigure every link that networkd configures. Left out are udev, which the machine does not have, and the
// services of other backends. `set` changes a key.
const netplan = `set -e
case $1 in
set) # in the file that has the key, as the real one does; a key to be removed is in none
	path=${2%=*}; key=${path##*.}; value=${2#*=}
	if [ "$value" = null ]; then ! grep -q "$key" /etc/netplan/*; exit; fi
	grep -q "$key: " /etc/netplan/*; sed -i "s/$key: [^,}]*/$key: $value/" /etc/netplan/*; exit ;;
generate) ;;
apply) ;;
*) exit 2 ;;
esac
LD_LIBRARY_PATH=$` + libraries + ` generate
[ "$1" = apply ] || exit 0
networkctl reload
indexes=$(networkctl --no-pager --no-legend | while read -r index name kind operational setup; do
	case $setup in unmanaged|linger) ;; *) echo "$index" ;; esac
done)
networkctl reconfigure $indexes
`

// installerFile is the installer's configuration with the addresses of these tests. A veth has no permanent hardware
// address, by which netplan would match a port, and there is no switch for LACP. The default route stands behind that
// of the VLAN interface.
var installerFile = strings.NewReplacer(
	`match: {macaddress: "02:00:00:00:00:01"}, set-name: eno1, `, "",
	`match: {macaddress: "02:00:00:00:00:02"}, set-name: eno2, `, "",
	"mode: 802.3ad, mii-monitor-interval: 100, transmit-hash-policy: layer3+4, lacp-rate: fast",
	"mode: active-backup, mii-monitor-interval: 50",
	"198.51.100.10/29", "10.0.0.2/24", "198.51.100.9", "10.0.0.1, metric: 100", "10.0.0.11/24", "10.0.11.2/24",
).Replace(fixes.Installer)

// The VLAN interface in a user's file of netplan: as it has to be, with another ID, and with the MTU of the bond.
const (
	publicNetplan = "    bond0.100: {id: 100, link: bond0, mtu: 1500, addresses: [192.0.2.2/28], " +
		"routes: [{to: default, via: 192.0.2.1}]}\n"
	otherNetplan = "    bond0.100: {id: 101, link: bond0, mtu: 9000}\n"
	jumboNetplan = "    bond0.100: {id: 100, link: bond0, mtu: 9000, addresses: [192.0.2.2/28]}\n"
)

// serveNetplan starts systemd-networkd on a machine whose network netplan configures.
func serveNetplan(t *testing.T, configuration string) *service {
	t.Helper()
	s := newServer(t)
	s.tool = check.Netplan
	s.lacks = installerLacks
	const directory = "/etc/netplan"
	empty(t, directory)
	interpreter, err := exec.LookPath("dash")
	must(t, "find dash", err)
	programs := t.TempDir()
	must(t, "write netplan", os.WriteFile(filepath.Join(programs, "netplan"), []byte("#!"+interpreter+"\n"+netplan),
		0o755))
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	follow(t, []check.Fix{{File: filepath.Join(directory, "50-cloud-init.yaml"), Content: configuration,
		Commands: nil}})
	s.boot("netplan generate\n")
	return s
}

// installerLacks is what the server lacks of what the installer's file gives it.
func installerLacks(t *testing.T) string {
	t.Helper()
	if what := uplinkLacks(t); what != "" {
		return what
	}
	routes, err := netlink.RouteList(find(t, "bond0"), netlink.FAMILY_V4)
	must(t, "list routes", err)
	private, err := netlink.LinkByName("bond0.11")
	switch {
	case !slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Gw.String() == "10.0.0.1" && r.Priority == 100
	}):
		return "the default route by bond0"
	case err != nil || private.Attrs().MTU != 9000 || !has(t, "bond0.11", "10.0.11.2/24"):
		return "the private network"
	}
	return ""
}

// TestNetplanFixesInTurn follows what findings print for netplan.
func TestNetplanFixesInTurn(t *testing.T) {
	inTurn(t, "netplan_networkd", 2,
		func(t *testing.T) *service { return serveNetplan(t, installerFile+publicNetplan) },
		func(t *testing.T) *service { return serveNetplan(t, installerFile) })
}

// TestNetplanFixesOfOwnFile: a user's own file of netplan is wrong in several ways.
func TestNetplanFixesOfOwnFile(t *testing.T) {
	t.Run("other network", func(t *testing.T) {
		serveNetplan(t, installerFile+otherNetplan).repairAll("WrongVLANID")
	})
	t.Run("jumbo frames", func(t *testing.T) {
		serveNetplan(t, installerFile+jumboNetplan).repairAll("UnusualMTU")
	})
}
