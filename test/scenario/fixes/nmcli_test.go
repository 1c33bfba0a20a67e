package fixes

import (
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

// offline is nmcli without NetworkManager: connections are files, the real nmcli edits them, and nothing is set up. One
// of a name that is not there is an error, as with NetworkManager.
const offline = `#!/bin/sh
set -eu
case "$1 $2" in
"connection modify")
  file=%[1]s/$3
  test -e "$file" || { echo "unknown connection $3" >&2; exit 10; }
  shift 3
  %[2]s --offline connection modify "$@" <"$file" >"$file.new"
  mv "$file.new" "$file" ;;
"connection add")
  file=%[1]s/$(echo "$*" | sed 's/.* con-name \([^ ]*\) .*/\1/')
  test ! -e "$file" || { echo "a second connection of that name" >&2; exit 1; }
  %[2]s --offline "$@" >"$file" ;;
*) echo "nmcli $*" >&2; exit 2 ;;
esac
`

// bond is the connection of the bond, which no fix but that of its mode may change.
const bond = "[connection]\nid=bond0\nuuid=6e7be634-7470-479d-ae97-e89ad28fc9d3\ntype=bond\ninterface-name=bond0\n\n" +
	"[bond]\nmiimon=100\nmode=balance-rr\n\n[ipv4]\naddress1=198.51.100.10/29,198.51.100.9\nmethod=manual\n\n[ipv6]\nmethod=auto\n"

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
			if !strings.HasSuffix(key, "uuid") {
				set[number.ReplaceAllString(key, "$1")+"="+value] = true
			}
		}
	}
	return set
}

// TestNetworkManager follows every pair with the real nmcli, on a server that has a connection for the VLAN interface
// and on one that has none, where only the findings about an interface that is missing can be followed first.
func TestNetworkManager(t *testing.T) {
	p := unpack(t)
	all := courses(t, check.NetworkManager, "nmcli connection modify ")
	base := newNMServer(t, p, map[string]string{"bond0": bond})
	must(t, "make the connection", base.follow(course{fixes: []check.Fix{{Commands: []string{
		"nmcli connection add type vlan con-name bond0.100 ifname bond0.100 dev bond0 id 100 ipv4.method disabled " +
			"802-3-ethernet.mtu 9000"}}}}))
	existing, err := os.ReadFile(filepath.Join(base.root, "connections", vlan))
	must(t, "read the connection", err)
	tried := 0
	broken := 0
	for name, connections := range map[string]map[string]string{
		"without the VLAN": {"bond0": bond}, "with the VLAN": {"bond0": bond, vlan: string(existing)},
	} {
		before := newNMServer(t, p, connections).settings()
		single := make([]map[string]bool, len(all))
		missed := make([]bool, len(all))
		for i, c := range all {
			s := newNMServer(t, p, connections)
			err := s.follow(c)
			single[i] = added(before, s.settings())
			if missed[i] = err != nil && len(connections) == 1; err != nil && !missed[i] {
				t.Errorf("%s: %s by itself: %v", name, c, err)
			}
			if missed[i] && len(single[i]) > 0 {
				t.Errorf("%s: %s fails and changes %v", name, c, single[i])
			}
		}
		tried += everyPair(all, func(i, j int) {
			s := newNMServer(t, p, connections)
			first := s.follow(all[i])
			second := s.follow(all[j])
			if first != nil && !missed[i] || second != nil && !missed[j] {
				t.Errorf("%s: %s, then %s: %v, %v", name, all[i], all[j], first, second)
			}
			want := unlessChanged(before)
			maps.Copy(want, single[i])
			maps.Copy(want, single[j])
			if lost := missing(want, s.settings()); len(lost) > 0 {
				broken += len(all[i].names) * len(all[j].names)
				t.Errorf("%s: %s, then %s: there is no %q", name, all[i], all[j], lost)
			}
		})
	}
	count(t, check.NetworkManager, tried, broken)
}

// unlessChanged leaves out what a fix has to change: the mode of the bond, MTU and addresses of the VLAN interface.
func unlessChanged(set map[string]bool) map[string]bool {
	rest := map[string]bool{}
	for entry := range set {
		if strings.HasPrefix(entry, "bond0 ") && !strings.Contains(entry, "mode=") {
			rest[entry] = true
		}
	}
	return rest
}
