//go:build linux

package netstate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzMachine: whatever firmware and cloud-init have written, the server ID has the form of one and comes from the
// place that is named.
func FuzzMachine(f *testing.F) {
	f.Add(`{"v1": {"instance_id": "`+id+`", "local_hostname": "srv-a"}}`, "", "", "")
	f.Add(`{"v1": null}`, id+"\n", strings.ToUpper(id), "x")
	f.Add(`{"v1": {"instance_id": 7}}`, "i-1", "\x00"+id, id+"\r\n")
	f.Add(`[]`, strings.Repeat("a", 100), "", "")
	dir := f.TempDir()
	places := []string{instanceData, instanceID, dmi + "product_serial", dmi + "product_uuid"}
	f.Fuzz(func(t *testing.T, instance, plain, serial, uuid string) {
		for i, content := range []string{instance, plain, serial, uuid} {
			path := filepath.Join(dir, places[i])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := (&Reader{FileRoot: dir}).readMachine()
		if m.ServerID == "" {
			if m.ServerIDFrom != "" {
				t.Errorf("no server ID, by %s", m.ServerIDFrom)
			}
			return
		}
		from := map[string]string{"cloud-init's instance ID": m.InstanceID, "the firmware's serial number": m.Serial,
			"the firmware's UUID": m.UUID}[m.ServerIDFrom]
		if !serverID.MatchString(m.ServerID) || !strings.EqualFold(from, m.ServerID) {
			t.Errorf("server ID %q by %s, which is %q", m.ServerID, m.ServerIDFrom, from)
		}
	})
}

// FuzzSetting: any content of a file of /proc/sys is a number or an error that names the setting.
func FuzzSetting(f *testing.F) {
	for _, content := range []string{"1\n", " -1", "", "0x10", "99999999999999999999", "1 2"} {
		f.Add(content)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		if err := os.WriteFile(filepath.Join(dir, "key"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		number, err := (&Reader{SysctlRoot: dir}).setting("key")
		if err != nil && (number != 0 || !strings.HasPrefix(err.Error(), "key: ")) {
			t.Errorf("%q is %d, %v", content, number, err)
		}
		if err == nil && slices.Contains([]byte(content), '.') {
			t.Errorf("%q is %d", content, number)
		}
	})
}
