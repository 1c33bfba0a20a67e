package diagnose

import (
	"bytes"
	"strings"
	"testing"
)

func lookUpIn(environment map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := environment[name]
		return value, set
	}
}

func TestGlyphsNeedAUnicodeLocale(t *testing.T) {
	for name, tc := range map[string]struct {
		environment map[string]string
		want        bool
	}{
		"none":                  {nil, false},
		"LANG":                  {map[string]string{"LANG": "en_US.UTF-8"}, true},
		"another spelling":      {map[string]string{"LANG": "de_DE.utf8"}, true},
		"Latin-1":               {map[string]string{"LANG": "de_DE.ISO-8859-1"}, false},
		"LC_ALL outweighs":      {map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, false},
		"empty LC_ALL does not": {map[string]string{"LC_ALL": "", "LC_CTYPE": "C.UTF-8"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := StyleFor(&bytes.Buffer{}, lookUpIn(tc.environment)).Unicode; got != tc.want {
				t.Errorf("glyphs %t, want %t", got, tc.want)
			}
		})
	}
}

func TestOutcomesAreOfOneWidth(t *testing.T) {
	var text bytes.Buffer
	if err := documentOf("OK", "SKIP", "WARN", "UNKNOWN", "FAIL").Text(&text, Style{}, ""); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if i := strings.Index(line, "PN10"); strings.HasPrefix(line, "  ") && i > 0 &&
			!strings.Contains(line, "more") && i != 12 {
			t.Errorf("the ID stands at column %d, want 12: %s", i, line)
		}
	}
	if strings.ContainsFunc(text.String(), func(r rune) bool { return r > 127 }) {
		t.Error("text without Unicode holds characters beyond ASCII")
	}
}
