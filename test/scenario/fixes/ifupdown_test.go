package fixes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// interfaces is what the installer of Debian writes, with a bond; the last line is that of the installer or of cloud
// images.
const interfaces = `auto lo
iface lo inet loopback
auto eno1
iface eno1 inet manual
auto eno2
iface eno2 inet manual
auto bond0
iface bond0 inet static
  address 198.51.100.10/29
  gateway 198.51.100.9
  bond-slaves eno1 eno2
  bond-mode balance-rr
  bond-miimon 100
auto bond0.11
iface bond0.11 inet static
  address 10.0.0.11/24
%s
`

// ifupdownServer is a server's configuration of ifupdown.
type ifupdownServer struct {
	t        *testing.T
	programs Programs
	root     string
}

func newIfupdownServer(t *testing.T, p Programs, source string) ifupdownServer {
	t.Helper()
	s := ifupdownServer{t: t, programs: p, root: t.TempDir()}
	must(t, "make the directories", os.MkdirAll(filepath.Join(s.root, "state"), 0o755))
	must(t, "make the directories", os.MkdirAll(filepath.Join(s.root, "etc/network/interfaces.d"), 0o755))
	write(t, s.root, "/etc/network/interfaces", fmt.Sprintf(interfaces, fmt.Sprintf(source, s.root)))
	return s
}

// follow writes the files of a course and runs what edits files.
func (s ifupdownServer) follow(c course) {
	s.t.Helper()
	for _, fix := range c.fixes {
		if fix.File != "" {
			write(s.t, s.root, fix.File, fix.Content)
		}
		for _, command := range fix.Commands {
			if strings.HasPrefix(command, "find ") {
				command = strings.ReplaceAll(command, "/etc/network/", s.root+"/etc/network/")
				_, err := s.programs.run(s.t, "", "sh", "-c", command+" 2>/dev/null || true")
				must(s.t, command, err)
			}
		}
	}
}

// settings are the options of all interfaces as ifupdown reads them, and what it would run to set the VLAN interface
// up.
func (s ifupdownServer) settings() map[string]bool {
	s.t.Helper()
	set := map[string]bool{}
	options := []string{"-i", filepath.Join(s.root, "etc/network/interfaces"), "--state-dir",
		filepath.Join(s.root, "state")}
	for _, name := range []string{"bond0", "bond0.11", vlan} {
		out, err := s.programs.run(s.t, "", s.programs.Ifquery, append(options, name)...)
		if err != nil && name != vlan { // which is not there before
			must(s.t, "ask for "+name, err)
		}
		for line := range strings.Lines(out) {
			set[name+" "+strings.TrimSpace(line)] = true
		}
	}
	cmd := append([]string{"-c", `"$0" "$@" 2>&1`, s.programs.Ifup, "--no-act", "--force", "-v"},
		append(options, vlan)...)
	out, err := s.programs.run(s.t, "", "sh", cmd...)
	if err != nil {
		return set
	}
	for line := range strings.Lines(strings.ReplaceAll(out, s.root, "")) {
		set["runs "+strings.TrimSpace(line)] = true
	}
	return set
}

// TestIfupdown follows every pair with the real ifquery and ifup, where the main file includes the others by either of
// the ways that Debian knows.
func TestIfupdown(t *testing.T) {
	p := unpack(t)
	all := courses(t, check.Ifupdown, "find ")
	tried := 0
	broken := 0
	for _, source := range []string{"source %s/etc/network/interfaces.d/*",
		"source-directory %s/etc/network/interfaces.d"} {
		before := newIfupdownServer(t, p, source).settings()
		single := make([]map[string]bool, len(all))
		for i, c := range all {
			s := newIfupdownServer(t, p, source)
			s.follow(c)
			if single[i] = added(before, s.settings()); len(single[i]) == 0 {
				t.Errorf("%s: %s by itself changes nothing", source, c)
			}
		}
		tried += everyPair(all, func(i, j int) {
			s := newIfupdownServer(t, p, source)
			s.follow(all[i])
			s.follow(all[j])
			want := unlessModes(before)
			maps.Copy(want, single[i])
			maps.Copy(want, single[j])
			if lost := missing(want, s.settings()); len(lost) > 0 {
				broken += len(all[i].names) * len(all[j].names)
				t.Errorf("%s: %s, then %s: there is no %q", source, all[i], all[j], lost)
			}
		})
	}
	count(t, check.Ifupdown, tried, broken)
}

// unlessModes leaves out the mode of the bond, which a fix may change.
func unlessModes(set map[string]bool) map[string]bool {
	rest := map[string]bool{}
	for entry := range set {
		if !strings.Contains(entry, "bond-mode") && !strings.HasPrefix(entry, "runs ") {
			rest[entry] = true
		}
	}
	return rest
}
