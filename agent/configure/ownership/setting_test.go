//go:build linux

package ownership

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSettings(t *testing.T) {
	raw := make([]byte, 4*33)
	for i := range 33 {
		binary.NativeEndian.PutUint32(raw[4*i:], uint32(100+i+1))
	}
	got, err := parseSettings(raw)
	if err != nil {
		t.Fatal(err)
	}
	for setting := range settingNames {
		if got[setting] != 100+int(setting) {
			t.Errorf("%s is %d, want %d", setting, got[setting], 100+int(setting))
		}
	}
	if _, err := parseSettings(raw[:4*20]); err == nil {
		t.Error("an array without src_valid_mark is read")
	}
}

func TestMissing(t *testing.T) {
	has := Settings{RPFilter: 1, ARPIgnore: 0, ProxyARP: 0}
	got := has.Missing(Settings{RPFilter: 2, ProxyARP: 0, ARPAnnounce: 2})
	if diff := cmp.Diff(Settings{RPFilter: 2, ARPAnnounce: 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
