package fixes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// offline is nmcli without NetworkManager: profiles are files, the real nmcli edits them, and nothing is set up. A
// profile is found by its UUID or its name. One that is not there is an error, as with NetworkManager.
const offline = `#!/bin/sh
set -eu
named() {
  for file in %[1]s/*; do
    if grep -qx -e "uuid=$1" -e "id=$1" "$file"; then echo "$file"; return; fi
  done
  echo "unknown connection '$1'" >&2; exit 10
}
case "$*" in
"-g UUID,FILENAME connection show")
  for file in %[1]s/*; do
    echo "$(sed -n s/^uuid=//p "$file"):/etc/NetworkManager/system-connections/${file##*/}"
  done ;;
"-g connection.interface-name connection show "*)
  file=$(named "$5"); sed -n s/^interface-name=//p "$file" ;;
"connection up "*) named "$3" >/dev/null ;;
"connection modify "*)
  file=$(named "$3"); shift 3
  %[2]s --offline connection modify "$@" <"$file" >/tmp/nmcli.$$
  cat /tmp/nmcli.$$ >"$file"; rm /tmp/nmcli.$$ ;;
"connection add "*)
  name=$(echo "$*" | sed 's/.* con-name \([^ ]*\) .*/\1/')
  %[2]s --offline "$@" >"%[1]s/$name.nmconnection" ;;
*) echo "nmcli $*" >&2; exit 2 ;;
esac
`

// configuration is what a provider gives cloud-init for a server with a bond and a VLAN interface on it, in the two
// versions of the format.
var configuration = map[string]string{
	"version 1": `version: 1
config:
  - {type: physical, name: eno1, mac_address: "02:00:00:00:00:01", mtu: 9000}
  - {type: physical, name: eno2, mac_address: "02:00:00:00:00:02", mtu: 9000}
  - type: bond
    name: bond0
    bond_interfaces: [eno1, eno2]
    params: {bond-mode: balance-rr, bond-miimon: 100}
    subnets: [{type: static, address: 198.51.100.10/29, gateway: 198.51.100.9}]
  - type: vlan
    name: bond0.100
    vlan_link: bond0
    vlan_id: 100
    mtu: 9000
    subnets: [{type: static, address: 192.0.2.2/28}]
`,
	"version 2": `version: 2
ethernets:
  eno1: {match: {macaddress: "02:00:00:00:00:01"}, set-name: eno1, mtu: 9000}
  eno2: {match: {macaddress: "02:00:00:00:00:02"}, set-name: eno2, mtu: 9000}
bonds:
  bond0:
    interfaces: [eno1, eno2]
    parameters: {mode: balance-rr, mii-monitor-interval: 100}
    addresses: [198.51.100.10/29]
    gateway4: 198.51.100.9
vlans:
  bond0.100: {id: 100, link: bond0, mtu: 9000, addresses: [192.0.2.2/28]}
`,
}

// fromCloudInit are the files that cloud-init writes for a renderer, by their names, of those below a directory.
func fromCloudInit(t *testing.T, configuration, renderer, directory string) map[string]string {
	t.Helper()
	files, err := CloudInit(t.Context(), configuration, renderer)
	must(t, "run cloud-init", err)
	found := map[string]string{}
	for path, content := range files {
		if filepath.Dir(path) == directory {
			found[filepath.Base(path)] = content
		}
	}
	if len(found) == 0 {
		t.Fatalf("cloud-init wrote nothing below %s: %v", directory, slices.Sorted(maps.Keys(files)))
	}
	return found
}

// nmServer is a server's configuration of NetworkManager.
type nmServer struct {
	t        *testing.T
	programs Programs
	root     string
}

func newNMServer(t *testing.T, p Programs, connections map[string]string) nmServer {
	t.Helper()
	s := nmServer{t: t, programs: p, root: t.TempDir()}
	write(t, s.root, "bin/nmcli", fmt.Sprintf(offline, filepath.Join(s.root, "connections"), p.Nmcli))
	must(t, "make nmcli executable", os.Chmod(filepath.Join(s.root, "bin/nmcli"), 0o755))
	for name, content := range connections {
		write(t, s.root, "connections/"+name, content)
	}
	return s
}

// follow runs the commands of a course.
func (s nmServer) follow(c course) error {
	for _, fix := range c.fixes {
		for _, command := range fix.Commands {
			cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
			cmd.Env = append(slices.Clone(s.programs.Environment),
				"PATH="+filepath.Join(s.root, "bin")+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
		}
	}
	return nil
}

// number is the place of a route or rule in its list.
var number = regexp.MustCompile(`(\] [a-z-]+)\d+`)

// settings are the lines of all connections, without the identifiers that are drawn by lot.
func (s nmServer) settings() map[string]bool {
	s.t.Helper()
	set := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(s.root, "connections/*"))
	must(s.t, "list the connections", err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(s.t, "read a connection", err)
		for entry := range settings(filepath.Base(path), string(text)) {
			// The number of a route or rule depends on what came before.
			key, value, _ := strings.Cut(entry, "=")
			if key = number.ReplaceAllString(key, "$1"); strings.HasSuffix(key, "uuid") {
				continue
			}
			// NetworkManager writes the gateway behind the address, cloud-init in a line of its own.
			if address, gateway, both := strings.Cut(value, ","); both && strings.HasSuffix(key, "] address") {
				value = address
				set[strings.TrimSuffix(key, "address")+"gateway="+gateway] = true
			}
			set[key+"="+value] = true
		}
	}
	return set
}

// profiles is where NetworkManager reads them from.
const profiles = "/etc/NetworkManager/system-connections"

// TestNetworkManager follows every pair with the real nmcli: on servers whose profiles cloud-init wrote, and on one
// that has none for the VLAN interface. Each course leaves exactly one.
func TestNetworkManager(t *testing.T) {
	p := unpack(t)
	all := courses(t, check.NetworkManager, "u=$(nmcli ")
	version, err := CloudInitVersion(t.Context())
	must(t, "ask for the version of cloud-init", err)
	t.Logf("the profiles are those of cloud-init %s", version)
	servers := map[string]map[string]string{}
	for name, text := range configuration {
		servers["cloud-init, "+name] = fromCloudInit(t, text, NetworkManagerFiles, profiles)
	}
	servers["without the VLAN"] = maps.Clone(servers["cloud-init, version 1"])
	delete(servers["without the VLAN"], "cloud-init-bond0.100.nmconnection")
	tried := 0
	broken := 0
	for name, connections := range servers {
		before := newNMServer(t, p, connections).settings()
		single := make([]map[string]bool, len(all))
		for i, c := range all {
			s := newNMServer(t, p, connections)
			if err := s.follow(c); err != nil {
				t.Errorf("%s: %s by itself: %v", name, c, err)
			}
			single[i] = added(before, s.settings())
			if n := s.profilesOf(vlan); n > 1 {
				t.Errorf("%s: %s leaves %d profiles of %s", name, c, n, vlan)
			}
		}
		if name == "cloud-init, version 2" {
			continue // its profiles are those of version 1 to the fixes; each course by itself shows that
		}
		tried += everyPair(all, func(i, j int) {
			s := newNMServer(t, p, connections)
			if err := errors.Join(s.follow(all[i]), s.follow(all[j])); err != nil {
				t.Errorf("%s: %s, then %s: %v", name, all[i], all[j], err)
			}
			want := unlessChanged(before)
			maps.Copy(want, single[i])
			maps.Copy(want, single[j])
			if lost := missing(want, s.settings()); len(lost) > 0 {
				broken += len(all[i].names) * len(all[j].names)
				t.Errorf("%s: %s, then %s: there is no %q", name, all[i], all[j], lost)
			}
			made := strings.Contains(fmt.Sprint(all[i].fixes, all[j].fixes), "connection add")
			if n := s.profilesOf(vlan); n > 1 || n == 0 && made {
				t.Errorf("%s: %s, then %s: %s has %d profiles", name, all[i], all[j], vlan, n)
			}
		})
	}
	count(t, check.NetworkManager, tried, broken)
}

// profilesOf is how many profiles an interface has.
func (s nmServer) profilesOf(name string) (number int) {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.root, "connections/*"))
	must(s.t, "list the profiles", err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(s.t, "read a profile", err)
		if strings.Contains(string(text), "\ninterface-name="+name+"\n") {
			number++
		}
	}
	return number
}

// unlessChanged leaves out what a fix has to change: the mode of the bond, MTU and addresses of the VLAN interface.
func unlessChanged(set map[string]bool) map[string]bool {
	rest := map[string]bool{}
	for entry := range set {
		if strings.HasPrefix(entry, "cloud-init-bond0.nmconnection ") && !strings.Contains(entry, "mode=") {
			rest[entry] = true
		}
	}
	return rest
}
