package text

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "word": 4, "✔ é": 3, "\x1b[1;31mred\x1b[0m": 3, "a\x1b[mb": 2,
		"\x1b[": 2, "a\x1b[31": 5, "\x1b[31mred\x1b[0m \x1b[": 6, "\x1b[\x1b[1mx": 3, "\x1b[2Jm": 5, "\x1b]0;m": 5,
		"m": 1,
	} {
		if got := Columns(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
}

// FuzzColumns: colors take no column, and no text takes more columns than characters.
func FuzzColumns(f *testing.F) {
	for _, seed := range []string{"", "\x1b[", "\x1b[1", "\x1b[0m\x1b[", "\x1b[\x1b[\x1b[m"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		count := Columns(text)
		if count < 0 || count > utf8.RuneCountInString(text) {
			t.Errorf("%q takes %d columns", text, count)
		}
		if got := Columns(Style{Color: true}.Paint(text, "1;31")); !strings.HasPrefix(text, "m") &&
			!strings.Contains(text, "\x1b") && got != count {
			t.Errorf("%q takes %d columns, in red %d", text, count, got)
		}
	})
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"": {""}, "   ": {""}, "one": {"one"}, "a  b\nc": {"a b c"}, "one two three": {"one two", "three"},
		"a-word-too-long for it": {"a-word-too-long", "for it"}, "for a-word-too-long": {"for", "a-word-too-long"},
		"\x1b[32mone\x1b[0m two": {"\x1b[32mone\x1b[0m two"},
	} {
		if got := Wrap(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// FuzzWrap: no word is lost, no line of several words is too wide, and the next word would not fit.
func FuzzWrap(f *testing.F) {
	f.Add("a sentence of some words", 10)
	f.Add("", 20)
	f.Add("one-word-that-is-longer-than-the-width", 8)
	f.Add("\x1b[32mgreen\x1b[0m and \x1b[", 7)
	f.Add("no width at all", -1)
	f.Fuzz(func(t *testing.T, text string, width int) {
		lines := Wrap(text, width)
		if len(lines) == 0 {
			t.Fatal("no line at all")
		}
		if got, want := strings.Fields(strings.Join(lines, " ")), strings.Fields(text); !slices.Equal(got, want) {
			t.Errorf("words are lost: %q becomes %q", text, lines)
		}
		for i, line := range lines {
			if words := strings.Fields(line); Columns(line) > width && len(words) > 1 {
				t.Errorf("%q is wider than %d", line, width)
			}
			if i > 0 && Columns(lines[i-1]+" "+strings.Fields(line)[0]) <= width {
				t.Errorf("%q has room for a word of %q", lines[i-1], line)
			}
		}
	})
}
