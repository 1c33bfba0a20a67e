//go:build linux

package netstate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// root makes a directory tree of files.
func root(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func conf(name string, rpFilter, proxyARP string) map[string]string {
	files := map[string]string{}
	for _, key := range check.SettingNames() {
		files["net/ipv4/conf/"+name+"/"+key] = "1\n"
	}
	files["net/ipv4/conf/"+name+"/rp_filter"] = rpFilter + "\n"
	files["net/ipv4/conf/"+name+"/proxy_arp"] = proxyARP + "\n"
	return files
}

// values are what is read of the files of conf.
func values(rpFilter, proxyARP int) check.Settings {
	s := check.Settings{}
	for _, key := range check.SettingNames() {
		s[key] = 1
	}
	s["rp_filter"] = rpFilter
	s["proxy_arp"] = proxyARP
	return s
}

func merged(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

func TestSettings(t *testing.T) {
	r := &Reader{SysctlRoot: root(t, merged(conf("all", "0", "0"), conf("bond0.100", "2", "1"),
		map[string]string{"net/ipv4/ip_forward": "1\n"}))}
	s := check.Snapshot{Links: []check.Link{{Name: "bond0"}, {Name: "bond0.100", VLAN: &check.VLAN{ID: 100}}}}
	r.readSettings(&s)
	want := map[string]check.Settings{
		"all":       values(0, 0),
		"bond0.100": values(2, 1),
	}
	if diff := cmp.Diff(want, s.Settings); diff != "" || !s.IPForward || len(s.Unread) != 0 {
		t.Errorf("forwarding %t, unread %v, settings (-want +got):\n%s", s.IPForward, s.Unread, diff)
	}
}

func TestSettingsThatCannotBeRead(t *testing.T) {
	broken := conf("all", "many", "0")
	r := &Reader{SysctlRoot: root(t, broken)}
	s := check.Snapshot{Links: []check.Link{{Name: "bond0.100", VLAN: &check.VLAN{ID: 100}}}}
	r.readSettings(&s)
	if len(s.Settings) != 0 || len(s.Unread) != 3 || !strings.HasPrefix(s.Unread[2], "net/ipv4/ip_forward") {
		t.Errorf("settings %v, unread %q; want none, and three notes", s.Settings, s.Unread)
	}
}

func TestRenderer(t *testing.T) {
	for want, files := range map[check.Tool]map[string]string{
		check.Netplan:        {"etc/netplan/50-cloud-init.yaml": "", "etc/systemd/network/a.network": ""},
		check.NetworkManager: {"etc/NetworkManager/system-connections/bond0.nmconnection": ""},
		check.Networkd:       {"etc/systemd/network/a.network": ""},
		check.Ifupdown:       {"etc/network/interfaces": ""},
		"":                   {"etc/hostname": "worker-1"},
	} {
		if got := (&Reader{FileRoot: root(t, files)}).renderer(); got != want {
			t.Errorf("with %v the renderer is %q, want %q", files, got, want)
		}
	}
}
