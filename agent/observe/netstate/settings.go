//go:build linux

package netstate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// readSettings reads the settings of "all", of VLAN interfaces and of the links below them: a node may have hundreds
// of pod interfaces, and theirs do not matter here. A setting that cannot be read is recorded, and its interface left
// out.
func (r *Reader) readSettings(s *check.Snapshot) {
	s.Settings = map[string]check.Settings{}
	for _, name := range settled(s.Links) {
		settings, err := r.settings(name)
		if err != nil {
			s.Unread = append(s.Unread, err.Error())
			continue
		}
		s.Settings[name] = settings
	}
	forward, err := r.setting("net/ipv4/ip_forward")
	if err != nil {
		s.Unread = append(s.Unread, err.Error())
	}
	s.IPForward = forward == 1
	reroute, err := r.setting("net/ipv4/vs/snat_reroute")
	s.IPVSReroute = err == nil && reroute == 1
}

// settled lists "all" and the interfaces whose settings are read.
func settled(links []check.Link) []string {
	names := []string{"all"}
	below := map[int]bool{}
	for _, l := range links {
		if l.VLAN != nil {
			names = append(names, l.Name)
			below[l.Parent] = true
		}
	}
	for _, l := range links {
		if l.Index != 0 && l.VLAN == nil && below[l.Index] {
			names = append(names, l.Name)
		}
	}
	return names
}

func (r *Reader) settings(name string) (check.Settings, error) {
	s := check.Settings{}
	for _, key := range check.SettingNames() {
		value, err := r.setting("net/ipv4/conf/" + name + "/" + key)
		if err != nil {
			return nil, err
		}
		s[key] = value
	}
	return s, nil
}

// setting reads one file. The path has only slashes: an interface name may contain dots.
func (r *Reader) setting(key string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(r.SysctlRoot, filepath.FromSlash(key)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return number, nil
}

// renderer guesses which tool configures the machine's network, from its configuration files.
func (r *Reader) renderer() check.Tool {
	for _, trace := range []struct {
		pattern string
		tool    check.Tool
	}{
		{"etc/netplan/*.yaml", check.Netplan},
		{"etc/NetworkManager/system-connections/*", check.NetworkManager},
		{"etc/sysconfig/network-scripts/ifcfg-*", check.NetworkManager},
		{"etc/systemd/network/*.network", check.Networkd},
		{"etc/network/interfaces", check.Ifupdown},
	} {
		if found, err := filepath.Glob(filepath.Join(r.FileRoot, trace.pattern)); err == nil && len(found) > 0 {
			return trace.tool
		}
	}
	return ""
}
