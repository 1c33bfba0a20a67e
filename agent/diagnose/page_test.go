package diagnose

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzWrap: no word is lost, and no line of several words is too wide.
func FuzzWrap(f *testing.F) {
	f.Add("a sentence of some words", 10)
	f.Add("", 20)
	f.Add("one-word-that-is-longer-than-the-width", 8)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = min(max(width, 1), 200)
		lines := wrap(text, width)
		if len(lines) == 0 {
			t.Fatal("no line at all")
		}
		if got, want := strings.Fields(strings.Join(lines, " ")), strings.Fields(text); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("words are lost: %q becomes %q", text, lines)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > width && len(strings.Fields(line)) > 1 {
				t.Errorf("%q is wider than %d", line, width)
			}
		}
	})
}
