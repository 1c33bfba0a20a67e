package contract

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// FuzzPublicNetworks: any text of the annotation is parsed or refused by the name of the annotation, and what was
// parsed is the same when it is encoded and parsed again.
func FuzzPublicNetworks(f *testing.F) {
	entry := func(name, vlan, ips string) string {
		return `{"name":"` + name + `","id":"` + name + `6104105e6b7c9a0012345678","vlan":` + vlan + `,"ips":[` + ips +
			`],"member":true,"announcer":"agent"}`
	}
	f.Add("[]")
	f.Add("[" + entry("default", "100", `"192.0.2.2/28","2001:db8::2"`) + "," + entry("a", "100", "") + "]")
	f.Add("[" + entry("default", "4094", `"192.0.2.2","fe80::1%eth0"`) + "]")
	f.Add("[" + entry("x", "7", `"192.0.2.2/28","192.0.2.2","192.0.2.3/29","::1/0","192.0.2.4/32"`) + "]")
	f.Add("[" + entry("x", "0", "") + "]")
	f.Add("[" + entry("x", `"7"`, "7") + "]")
	f.Add("[" + entry("x", "1", "") + "," + entry("x", "1", "") + "]")
	f.Add("[null]")
	f.Add("null")
	f.Fuzz(func(t *testing.T, raw string) {
		first, ok, err := ParsePublicNetworks(map[string]string{NodePublicNetworks: raw, NodeServerID: "s"})
		switch {
		case ok != (err == nil) || !ok && first != nil:
			t.Errorf("published: %t, %v, %v", ok, first, err)
		case err != nil && !strings.Contains(err.Error(), "annotation "+NodePublicNetworks):
			t.Errorf("the error %v does not name the annotation", err)
		case err != nil && (len(err.Error()) > 600 || text.Clean(err.Error()) != err.Error()):
			t.Errorf("the error %q is long, or contains control characters", err)
		}
		if !ok {
			return
		}
		for _, n := range first {
			if n.VLAN < 1 || n.VLAN > 4094 || n.ServerID != "s" {
				t.Errorf("published: %+v", n)
			}
		}
		encoded, err := EncodePublicNetworks(first)
		if err != nil {
			t.Fatalf("what was parsed cannot be published: %v", err)
		}
		again, ok, err := ParsePublicNetworks(map[string]string{NodePublicNetworks: encoded, NodeServerID: "s"})
		slices.SortFunc(first, func(a, b NodeNetwork) int { return compareNames(a.Name, b.Name) })
		if diff := cmp.Diff(first, again, compareAddresses); diff != "" || !ok || err != nil {
			t.Errorf("read again: %t, %v (-first +again):\n%s", ok, err, diff)
		}
	})
}

// FuzzAnnouncerKeys: any content of the Secret is parsed or refused, no error contains a part of it, and parsed keys
// are the same when they are written and parsed again.
func FuzzAnnouncerKeys(f *testing.F) {
	key := FormatAnnouncerKey(AnnouncerKey{1, 2, 3})
	f.Add(key)
	f.Add(key + FormatAnnouncerKey(AnnouncerKey{4}))
	f.Add(key + key)
	f.Add(" \n")
	f.Add("bm8ga2V5IG9mIHRoaXMgbGVuZ3Ro")
	f.Add(strings.TrimSpace(key) + "=")
	f.Fuzz(func(t *testing.T, content string) {
		first, err := ParseAnnouncerKeys(content)
		if err != nil {
			for _, word := range strings.Fields(content) {
				// Shorter words may occur in the text by chance.
				if len(word) >= 8 && strings.Contains(err.Error(), word) {
					t.Errorf("the error %q contains %q of the Secret", err, word)
				}
			}
			return
		}
		var written strings.Builder
		for _, k := range first {
			written.WriteString(FormatAnnouncerKey(k))
		}
		again, err := ParseAnnouncerKeys(written.String())
		if diff := cmp.Diff(first, again); diff != "" || err != nil {
			t.Errorf("%v (-first +again):\n%s", err, diff)
		}
	})
}
