//go:build linux

package networkd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/docs/reference"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/fixes"
)

// busConfiguration is a system bus that lets everyone do everything.
const busConfiguration = `<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
`

// bondNetwork is how the bond gets its address and the way to the Internet.
const bondNetwork = "[Match]\nName=bond0\n[Network]\nAddress=10.0.0.2/24\nGateway=10.0.0.1\nLinkLocalAddressing=no\n"

// bus starts the bus by which networkctl asks the service.
func bus(t *testing.T) {
	t.Helper()
	must(t, "make /run/dbus", os.MkdirAll("/run/dbus", 0o755))
	file := filepath.Join(t.TempDir(), "bus.conf")
	must(t, "configure the bus", os.WriteFile(file, []byte(busConfiguration), 0o644))
	cmd := exec.Command("dbus-daemon", "--config-file="+file, "--nofork", "--nopidfile")
	cmd.Stdout = os.Stderr
	cmd.Stderr = os.Stderr
	must(t, "start the bus", cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		must(t, "remove the socket", os.RemoveAll("/run/dbus"))
	})
	await(t, "the bus", func() bool {
		_,
			err := os.Stat("/run/dbus/system_bus_socket")
		return err == nil
	})
}

// follow writes files and runs commands as a user who copies them.
func follow(t *testing.T, fixes []check.Fix) {
	t.Helper()
	must(t, "follow", followed(t.Context(), fixes))
}

func followed(ctx context.Context, fixes []check.Fix) error {
	for _, fix := range fixes {
		if fix.File != "" {
			if err := os.MkdirAll(filepath.Dir(fix.File), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(fix.File, []byte(fix.Content), 0o644); err != nil {
				return err
			}
		}
		for _, command := range fix.Commands {
			if out, err := exec.CommandContext(ctx, "dash", "-ec", command).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
		}
	}
	return nil
}

// finding is how the agent fixes a finding with systemd-networkd.
func finding(t *testing.T, id check.ID, reason string) []check.Fix {
	t.Helper()
	examples, err := reference.Examples(root())
	must(t, "read the findings", err)
	for _, f := range examples[id] {
		if f.Reason == reason {
			return slices.DeleteFunc(slices.Clone(f.Fixes),
				func(fix check.Fix) bool { return fix.Tool != check.Networkd })
		}
	}
	t.Fatalf("no %s %s", id, reason)
	return nil
}

// guide is how the guide makes the VLAN interface with systemd-networkd.
func guide(t *testing.T) []check.Fix {
	t.Helper()
	recipes, err := fixes.Guide(root(), check.Networkd)
	must(t, "read the guide", err)
	return recipes[0].Fixes
}

// wired is the VLAN interface as it has to be.
func wired(t *testing.T) bool {
	t.Helper()
	link, err := netlink.LinkByName("bond0.100")
	if err != nil {
		return false
	}
	vlan, is := link.(*netlink.Vlan)
	return is && vlan.VlanId == 100 && vlan.ParentIndex == find(t, "bond0").Attrs().Index && vlan.MTU == 1500 &&
		vlan.OperState == netlink.OperUp && has(t, "bond0.100", "192.0.2.2/28")
}

func has(t *testing.T, name, address string) bool {
	t.Helper()
	addresses, err := netlink.AddrList(find(t, name), netlink.FAMILY_V4)
	must(t, "list addresses", err)
	return slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return a.IPNet.String() == address })
}

// routed reports whether routes and rules of the block are there.
func routed(t *testing.T) bool {
	t.Helper()
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	must(t, "list rules", err)
	return leads(t, netlink.Route{Table: 1100}, "192.0.2.1") &&
		slices.ContainsFunc(rules, func(r netlink.Rule) bool {
			return r.Table == 1100 && r.Src != nil &&
				r.Src.String() == "192.0.2.0/28"
		})
}

// leads reports whether a route of the table leads to a gateway.
func leads(t *testing.T, table netlink.Route, gateway string) bool {
	t.Helper()
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &table, netlink.RT_FILTER_TABLE)
	must(t, "list routes", err)
	return slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.String() == gateway })
}

// forget removes the rules that the service leaves behind.
func forget(t *testing.T) {
	t.Helper()
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	must(t, "list rules", err)
	for _, r := range rules {
		if r.Priority >= 1055 && r.Priority <= 1057 {
			must(t, "remove a rule", netlink.RuleDel(&r))
		}
	}
}

// TestRecipes does what finding and guide say on a server whose bond systemd-networkd configures, by a file of a person
// or of netplan: the bond keeps its address and the way to the Internet, and in the end all of it stands, whatever came
// first.
func TestRecipes(t *testing.T) {
	vlan := finding(t, check.VLANInterface, "VLANInterfaceMissing")
	routes := finding(t, check.ReturnPath, "ReturnPathElsewhere")
	for _, tc := range []struct {
		name, bondFile string
		steps          [][]check.Fix
	}{
		{"finding, then routes", "/etc/systemd/network/20-uplink.network", [][]check.Fix{vlan, routes}},
		{"guide, beside netplan", "/run/systemd/network/10-netplan-bond0.network",
			[][]check.Fix{guide(t), routes}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := prepare(t)
			// The service makes its identifier of DHCPv6 of it.
			overlay(t, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
			bus(t)
			must(t, "make the directory", os.MkdirAll(filepath.Dir(tc.bondFile), 0o755))
			must(t, "configure bond0", os.WriteFile(tc.bondFile, []byte(bondNetwork), 0o644))
			connect(t)
			t.Cleanup(func() { forget(t) })
			s.start()
			s.initialiseNext()
			await(t, "the bond's address", func() bool { return has(t, "bond0", "10.0.0.2/24") })
			for _, step := range tc.steps {
				follow(t, step)
			}
			await(t, "the VLAN interface", func() bool { return wired(t) })
			await(t, "the routes", func() bool { return routed(t) })
			// networkd takes them away for a moment when it reads the bond's file again.
			await(t, "the bond's address", func() bool { return has(t, "bond0", "10.0.0.2/24") })
			await(t, "the bond's default route",
				func() bool { return leads(t, netlink.Route{Table: unix.RT_TABLE_MAIN}, "10.0.0.1") })
		})
	}
}

// initialiseNext notes of the interfaces to come what udev would.
func (s *service) initialiseNext() {
	s.t.Helper()
	for index := range 100 {
		must(s.t, "note", os.WriteFile(filepath.Join("/run/udev/data", "n"+strconv.Itoa(index+1)), []byte("I:1\n"),
			0o644))
	}
}

// TestGuideIsTheFinding: what the guide says is what the agent prints, notes included.
func TestGuideIsTheFinding(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(), "docs", "guides", "network.md"))
	must(t, "read the guide", err)
	for _, fix := range finding(t, check.VLANInterface, "VLANInterfaceMissing") {
		for _, text := range []string{fix.File, fix.Content, strings.Join(fix.Commands, "\n"), fix.Note} {
			if !strings.Contains(string(page), text) {
				t.Errorf("the guide lacks %s", text)
			}
		}
	}
}

func root() string {
	path, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		panic(err)
	}
	return path
}
