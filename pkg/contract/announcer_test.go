package contract

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnnouncerKeys(t *testing.T) {
	key := func(n byte) AnnouncerKey { return AnnouncerKey(bytes.Repeat([]byte{n}, AnnouncerKeyLength)) }
	line := func(n byte) string { return FormatAnnouncerKey(key(n)) }
	for content, want := range map[string]struct {
		keys []AnnouncerKey
		err  string
	}{
		line(1):                     {keys: []AnnouncerKey{key(1)}},
		line(1) + "\n" + line(2):    {keys: []AnnouncerKey{key(1), key(2)}},
		"  " + line(1):              {keys: []AnnouncerKey{key(1)}},
		"":                          {err: "no key"},
		"secret":                    {err: "line 1 is not a key"},
		line(1) + "c2hvcnQ=":        {err: "line 2 is not a key"},
		line(1) + line(2) + line(3): {err: "3 keys"},
		line(1) + line(1):           {err: "the same key twice"},
	} {
		keys, err := ParseAnnouncerKeys(content)
		if (err == nil) != (want.err == "") || !strings.Contains(fmt.Sprint(err), want.err) {
			t.Errorf("ParseAnnouncerKeys(%q): %v, want %q", content, err, want.err)
		}
		if diff := cmp.Diff(want.keys, keys); diff != "" {
			t.Errorf("ParseAnnouncerKeys(%q) (-want +got):\n%s", content, diff)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error %q contains content of the Secret", err)
		}
	}
}
