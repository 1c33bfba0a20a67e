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

// own is the VLAN interface of the public network as a user may have configured it in the installer's file.
const own = `    bond0.100: {id: 100, link: bond0, mtu: 9000, addresses: [192.0.2.2/28]}
`

// netplanServer is a server's configuration of netplan.
type netplanServer struct {
	t        *testing.T
	programs Programs
	root     string
}

func newNetplanServer(t *testing.T, p Programs, configuration string) netplanServer {
	t.Helper()
	s := netplanServer{t: t, programs: p, root: t.TempDir()}
	write(t, s.root, "/etc/netplan/50-cloud-init.yaml", configuration)
	return s
}

// generated is what netplan makes of the configuration, as at the start of the machine, when there is nothing yet.
func (s netplanServer) generated() (map[string]bool, error) {
	s.t.Helper()
	must(s.t, "forget what was generated", os.RemoveAll(filepath.Join(s.root, "run")))
	if _, err := s.programs.run(s.t, "", s.programs.Generate, "--root-dir", s.root); err != nil {
		return nil, err
	}
	units := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(s.root, "run/systemd/network/*"))
	must(s.t, "list what was generated", err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(s.t, "read what was generated", err)
		maps.Copy(units, settings(filepath.Base(path), string(text)))
	}
	return units, nil
}

// follow writes the files of a course and generates after each.
func (s netplanServer) follow(c course) (units map[string]bool, err error) {
	s.t.Helper()
	for _, fix := range c.fixes {
		if fix.File != "" {
			write(s.t, s.root, fix.File, fix.Content)
		}
		if units, err = s.generated(); err != nil {
			return nil, fmt.Errorf("after %s wrote %s: %w", c, fix.File, err)
		}
	}
	return units, nil
}

// foreign are the entries that are not about the VLAN interface of the public network: they must never change.
func foreign(units map[string]bool) map[string]bool {
	set := map[string]bool{}
	for entry := range units {
		if !strings.Contains(entry, vlan) && !strings.Contains(entry, "public0") {
			set[entry] = true
		}
	}
	return set
}

// pair follows two courses one after the other and returns what is wrong. before is what the server generates by
// itself, only what each course adds to it.
func (s netplanServer) pair(before map[string]bool, courses [2]course, single [2]map[string]bool) error {
	s.t.Helper()
	var units map[string]bool
	for _, c := range courses {
		var err error
		if units, err = s.follow(c); err != nil {
			return err
		}
		if lost := missing(foreign(before), units); len(lost) > 0 {
			return fmt.Errorf("%s takes from the server %q", c, lost)
		}
		if grown := missing(foreign(units), before); len(grown) > 0 {
			return fmt.Errorf("%s adds to the server %q", c, grown)
		}
	}
	if lost := append(missing(single[0], units), missing(single[1], units)...); len(lost) > 0 {
		return fmt.Errorf("in the end there is no %q", lost)
	}
	return nil
}

// TestNetplan follows every pair of what findings and the guide say, in both orders, on a server where nothing of the
// VLAN interface is configured (a person may have made it by hand) and on one where it is, with the real generator. The
// server keeps its bond, addresses and routes after every step, and in the end both stand.
func TestNetplan(t *testing.T) {
	p := unpack(t)
	all := courses(t, check.Netplan)
	tried := 0
	broken := 0
	for name, configuration := range map[string]string{"without the VLAN": Installer,
		"with the VLAN": Installer + own} {
		before, err := newNetplanServer(t, p, configuration).generated()
		must(t, "generate the server's own configuration", err)
		single := make([]map[string]bool, len(all))
		for i, c := range all {
			units, err := newNetplanServer(t, p, configuration).follow(c)
			if single[i] = added(before, units); err != nil {
				t.Errorf("%s: %s by itself: %v", name, c, err)
			}
		}
		tried += everyPair(all, func(i, j int) {
			s := newNetplanServer(t, p, configuration)
			if err := s.pair(before, [2]course{all[i], all[j]}, [2]map[string]bool{single[i], single[j]}); err != nil {
				broken += len(all[i].names) * len(all[j].names)
				t.Errorf("%s: %s, then %s: %v", name, all[i], all[j], err)
			}
		})
	}
	count(t, check.Netplan, tried, broken)
}
