package check

import (
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNoFixOverwritesAnother: whatever goes wrong on one server, each file that a fix writes has one content.
func TestNoFixOverwritesAnother(t *testing.T) {
	type writer struct{ fault, content string }
	written := map[string]writer{}
	all := faults()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e, s := nodeWith(all[name].inject)
		if !sameServer(e) {
			continue
		}
		for _, f := range Evaluate(e, s).Findings {
			for _, fix := range f.Fixes {
				if fix.File == "" {
					continue
				}
				who := string(f.ID) + " of " + name
				before, has := written[fix.File]
				if has && before.content != fix.Content {
					t.Errorf("%s and %s write %s with different content (-first +second):\n%s",
						before.fault, who, fix.File, cmp.Diff(before.content, fix.Content))
				}
				written[fix.File] = writer{who, fix.Content}
			}
		}
	}
	if len(written) < 20 {
		t.Errorf("only %d files are written: the test shows nothing", len(written))
	}
}

// sameServer reports whether the controller publishes the same, and the same options are set, as on the healthy node.
func sameServer(e Expected) bool {
	return cmp.Equal(expectedNode(), e, sameAddr, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

// TestFixesWriteFilesOfTheirOwn: a file that a person, the installer or another program may have written is never
// written by a fix, and none needs another to be complete.
func TestFixesWriteFilesOfTheirOwn(t *testing.T) {
	ours := regexp.MustCompile(`phoenixnap|bond0\.100|public0`)
	whole := map[string]*regexp.Regexp{
		".yaml": regexp.MustCompile(
			`(?s)^network:\n  version: 2\n  vlans:\n    \S+:\n      id: \d+\n      link: \S+\n`),
		".netdev":  regexp.MustCompile(`(?s)^\[NetDev\]\nName=\S+\nKind=`),
		".network": regexp.MustCompile(`(?s)^\[Match\]\nName=`),
	}
	for name, f := range faults() {
		for _, found := range Evaluate(nodeWith(f.inject)).Findings {
			for _, fix := range found.Fixes {
				if fix.File == "" {
					continue
				}
				if !ours.MatchString(fix.File) {
					t.Errorf("%s of %s writes %s, which is not ours", found.ID, name, fix.File)
				}
				if pattern := whole[path.Ext(fix.File)]; pattern != nil && !pattern.MatchString(fix.Content) {
					t.Errorf("%s of %s: %s is not whole:\n%s", found.ID, name, fix.File, fix.Content)
				}
				// With source-directory, ifupdown reads no file whose name has a dot (interfaces(5)).
				if dir, base := path.Split(fix.File); dir == interfacesDirectory &&
					(strings.Contains(base, ".") || !strings.Contains(fix.Content, "iface ")) {
					t.Errorf("%s of %s: ifupdown may not read %s, or it is no section:\n%s", found.ID, name, fix.File,
						fix.Content)
				}
			}
		}
	}
}

// TestNetplanFixesAreTriedBeforeTheyApply: a file that netplan refuses keeps it from configuring anything at the next
// start of the machine, the bond included, so it is set aside at once.
func TestNetplanFixesAreTriedBeforeTheyApply(t *testing.T) {
	tried := 0
	for name, f := range faults() {
		for _, found := range Evaluate(nodeWith(f.inject)).Findings {
			for _, fix := range found.Fixes {
				if fix.Tool != Netplan || path.Ext(fix.File) != ".yaml" {
					continue
				}
				tried++
				want := []string{"chmod 600 " + fix.File,
					"netplan generate || mv " + fix.File + " " + fix.File + ".rejected"}
				if len(fix.Commands) < 3 || !slices.Equal(want, fix.Commands[:2]) ||
					!slices.Contains(fix.Commands[2:], "netplan apply") {
					t.Errorf("%s of %s runs %q, want it to begin with %q and to run netplan apply then", found.ID, name,
						fix.Commands, want)
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no fix of netplan was found")
	}
}

// TestNoCarrierNamesWhatToLookAt: an interface that is up does not get a carrier by being set up.
func TestNoCarrierNamesWhatToLookAt(t *testing.T) {
	for _, name := range []string{"uplink without carrier", "VLAN interface no carrier"} {
		first, _ := Evaluate(nodeWith(faults()[name].inject)).FirstCause()
		var text string
		for _, fix := range first.Fixes {
			text += strings.Join(fix.Commands, "\n") + "\n" + fix.Note + "\n"
		}
		for _, vain := range []string{"ip link set bond0", "netplan apply", "ifup", "networkctl", "nmcli"} {
			if strings.Contains(text, vain) {
				t.Errorf("%s: the fix has %q, which changes nothing:\n%s", name, vain, text)
			}
		}
		for _, want := range []string{"cable", "switch port", "eno1", "eno2", "ip -br link show master bond0",
			"ethtool eno1", "ethtool eno2",
			"cat /proc/net/bonding/bond0"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the fix does not contain %q:\n%s", name, want, text)
			}
		}
	}
}

// TestNoCarrierSetsMembersUp: a member that a person set down is the one cause that a command removes.
func TestNoCarrierSetsMembersUp(t *testing.T) {
	down := func(l *Link) {
		l.Up = false
		l.LowerUp = false
		l.OperState = "down"
	}
	e, s := nodeWith(faults()["uplink without carrier"].inject, editLink("eno2", down))
	first, _ := Evaluate(e, s).FirstCause()
	want := Fix{Tool: IPRoute2, Commands: []string{"ip link set eno2 up"}, Note: volatile}
	if !slices.ContainsFunc(first.Fixes, func(fix Fix) bool { return cmp.Equal(want, fix) }) {
		t.Errorf("fixes %+v lack %+v", first.Fixes, want)
	}
}

// filesOfFixes are the places in which fixes write, each with a name of our own; commandsOfFixes are the forms of their
// commands. One that is new has to be thought through: what else may it change?
var (
	filesOfFixes = regexp.MustCompile(`^/etc/(netplan/9\d-phoenixnap-\S+\.yaml` +
		`|network/interfaces\.d/phoenixnap-[^.]+` +
		`|systemd/network/90-bond0\.100\.(netdev|network|network\.d/90-phoenixnap-[a-z]+\.conf)` +
		`|systemd/network/10-netplan-bond0\.100\.network\.d/return-path\.conf` +
		`|sysctl\.d/90-phoenixnap-\S+\.conf|phoenixnap-return-path\.nft|systemd/system/phoenixnap-return-path\.service)$`)
	commandsOfFixes = map[string]*regexp.Regexp{
		"shows something": regexp.MustCompile(`^(ip (-br |-s )?(link|address|route|rule) (show|get)\b|ethtool |arping |` +
			`tcpdump |cat |hostnamectl status$|bpftool net show$|kubectl .* (get|status) |phoenixnap-agent diagnose )`),
		"changes one thing of one interface": regexp.MustCompile(`^ip (link (set \S+ (mtu \d+ up|mtu \d+|up|nomaster|` +
			`arp on|address \S+)|delete \S+)|address (add|delete) \S+ dev \S+( \|\| true)?|address flush dev \S+ to \S+/32|` +
			`neighbour delete \S+ dev \S+)$`),
		"changes the mode of a bond": regexp.MustCompile(`^ip (link set (bond0 (down|type bond mode 802\.3ad)|` +
			`eno\d master bond0)|route (save table all >|restore <) /run/bond0\.routes)$`),
		"restarts the machine": regexp.MustCompile(`^systemctl reboot$`),
		"makes an interface":   regexp.MustCompile(`^ip link add link \S+ name \S+ type vlan id \d+$`),
		"adds a route or rule": regexp.MustCompile(`^ip (` +
			`route replace default via \S+ dev \S+ onlink( metric \d+| table \d+)?|` +
			`rule add pref 105[567] (from|fwmark) \S+ lookup .+)$`),
		"reads a file of ours": regexp.MustCompile(
			`^(sysctl -p|nft -f|chmod 600|systemctl enable --now) \S*phoenixnap-\S+$`),
		"sets a refused file aside": regexp.MustCompile(
			`^netplan generate \|\| mv (\S+/9\d-phoenixnap-\S+) \S+/9\d-phoenixnap-\S+\.rejected$`),
		"lets the tool read its files": regexp.MustCompile(`^(netplan apply|networkctl (reload|reconfigure \S+)|` +
			`systemctl (try-)?restart (systemd-networkd|networking)|nmcli connection reload|nmcli device connect \S+|` +
			`if(up|up --force --ignore-errors --no-scripts) \S+|ifdown --force \S+ \|\| true)$`),
		"changes the profile of one interface": regexp.MustCompile(`^u=\$\(nmcli .* = bond0(\.100)? \]; then .*\); ` +
			`(\[ "\$u" \] \|\| nmcli connection add type vlan con-name bond0\.100 ifname bond0\.100 [^;]*; ` +
			`nmcli connection modify "\$\{u:-bond0\.100\}" [^;]*nmcli connection up "\$\{u:-bond0\.100\}"|` +
			`\[ -z "\$u" \] \|\| \{ nmcli connection modify "\$u" [^;]* && nmcli connection up "\$u"; \})$`),
		"changes one key": regexp.MustCompile(`^netplan set (bonds\.bond0\.parameters\.mode=\S+|` +
			`vlans\.bond0\\\.100\.macaddress=null)$`),
		"adds a drop-in of its own": regexp.MustCompile(`^(networkctl status|grep -lsx) .* while read -r f; do ` +
			`mkdir -p "\$f\.d" && (printf '[^']+' > "\$f\.d/90-phoenixnap-\S+\.conf"|ln -sf \S+ "\$f\.d/"); done$`),
		"changes one line of one interface": regexp.MustCompile(
			`^find /etc/network/interfaces /etc/network/interfaces\.d/ -type f -exec sed -i '/\^iface bond0(\.100)? /,/\^iface /s/\^\\\(\[\[:space:\]\]\*(bond-mode|mtu)\\\)`),
	}
)

// TestFixesAreOfKnownKinds: every fix is a whole file or a drop-in with a name of its own, or a command that changes
// nothing else.
func TestFixesAreOfKnownKinds(t *testing.T) {
	used := map[string]bool{}
	for name, f := range faults() {
		for _, found := range Evaluate(nodeWith(f.inject)).Findings {
			for _, fix := range found.Fixes {
				if fix.File != "" && !filesOfFixes.MatchString(strings.ReplaceAll(fix.File, "public0", "bond0.100")) {
					t.Errorf("%s of %s writes %s, which is in none of the known places", found.ID, name, fix.File)
				}
				for _, command := range fix.Commands {
					kind := kindOf(strings.ReplaceAll(command, "public0", "bond0.100"))
					if used[kind] = true; kind == "" {
						t.Errorf("%s of %s runs %q, which is of no known kind", found.ID, name, command)
					}
				}
			}
		}
	}
	for kind := range commandsOfFixes {
		if !used[kind] {
			t.Errorf("no fix has a command that %s", kind)
		}
	}
}

func kindOf(command string) string {
	for kind, form := range commandsOfFixes {
		if form.MatchString(command) {
			return kind
		}
	}
	return ""
}
