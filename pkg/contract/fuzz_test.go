package contract

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzNodeNetwork: any annotations of a Node are parsed or refused by the name of one of them, and what was parsed is
// the same when it is encoded and parsed again.
func FuzzNodeNetwork(f *testing.F) {
	f.Add("6104105e6b7c9a0012345678", "100", "192.0.2.2, 2001:db8::2", "true",
		`[{"id":"b","cidr":"192.0.2.0/28","gateway":"192.0.2.1"}]`)
	f.Add("n", "0", "", "", "")
	f.Add("n", "4094", "192.0.2.2,", "yes", "[null]")
	f.Add("n", "+7", "fe80::1%eth0", "", `[{"cidr":"::/129"}]`)
	f.Add("", "x", "x", "x", "x")
	f.Fuzz(func(t *testing.T, id, vlan, ips, member, blocks string) {
		annotations := map[string]string{NodePublicNetworkID: id, NodePublicNetworkVLAN: vlan,
			NodePublicNetworkIPs: ips, NodePublicNetworkMember: member, NodePublicNetworkBlocks: blocks}
		first, ok, err := ParseNodeNetwork(annotations)
		switch {
		case err != nil && (ok || !strings.Contains(err.Error(), "annotation phoenixnap.com/")):
			t.Errorf("the error %v names no annotation, or the network counts as published: %t", err, ok)
		case err != nil:
			return
		case ok != (id != ""):
			t.Errorf("published: %t, with the ID %q", ok, id)
		case ok && (first.VLAN < 1 || first.VLAN > 4094):
			t.Errorf("VLAN %d", first.VLAN)
		}
		if !ok {
			return
		}
		encoded, err := first.Annotations()
		if err != nil {
			t.Fatal(err)
		}
		again, ok, err := ParseNodeNetwork(encoded)
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
