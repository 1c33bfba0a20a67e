package text

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":                      {"", ""},
		"ordinary text":                {"Node worker-1: 5 % of 10 €, ✔ é 日本", "Node worker-1: 5 % of 10 €, ✔ é 日本"},
		"a combining accent":           {"e\u0301", "e\u0301"},
		"line feeds, tabs, form feeds": {"a\nb\r\nc\td\fe\vf", "a b  c d e f"},
		"lines of Unicode":             {"a\u0085b\u2028c\u2029d", "a b c d"},
		"spaces of Unicode":            {"a\u00a0b\u3000c", "a b c"},
		"clear the screen":             {"a\x1b[2Jb", "a?[2Jb"},
		"colour":                       {"\x1b[31mred\x1b[0m", "?[31mred?[0m"},
		"unterminated":                 {"a\x1b[", "a?["},
		"window title":                 {"\x1b]0;title\x07", "?]0;title?"},
		"C1 controls":                  {"\u009b2J\u0090q\u009c", "?2J?q?"},
		"NUL, backspace, DEL":          {"a\x00b\bc\x7f", "a?b?c?"},
		"text direction":               {"\u202eabc\u2066d\u2069\u061c\u200f", "?abc?d???"},
		"no width":                     {"a\u200bb\u200dc\ufeffd\u00ad", "a?b?c?d?"},
		"invisible characters":         {"a\u3164b\u034fc\ufe0fd\U000e0041\U000e0100", "a?b?c?d??"},
		"private use, unassigned":      {"\ue000\U000fffff\uffff", "???"},
		"invalid UTF-8":                {"a\xffb\xe2\x80c\xc0\x9b", "a?b??c??"},
		"the replacement character":    {"\ufffd", "?"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Clean(tc.text); got != tc.want {
				t.Errorf("%q becomes %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}

// FuzzClean: the result is valid UTF-8 of printable characters, cleaning again changes nothing, and safe text is kept.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\x1b[2J\x1b[", "\u202e\u200b\u009b", "\xff\xe2\x80",
		"a\nb\r\tc\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Clean(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q becomes %q", text, got)
		}
		if again := Clean(got); again != got {
			t.Errorf("%q becomes %q, and that %q", text, got, again)
		}
		if utf8.RuneCountInString(got) != utf8.RuneCountInString(text) {
			t.Errorf("%q becomes %q: a character is missing", text, got)
		}
		if ascii := func(r rune) bool {
			return r >= ' ' &&
				r <= '~'
		}; !strings.ContainsFunc(text, func(r rune) bool { return !ascii(r) }) && got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

// FuzzCleaner: however a stream is split, its lines are cleaned as by Clean, and tabs are kept.
func FuzzCleaner(f *testing.F) {
	f.Add("two\nlines\tand \x1b[2J \u202e \u20ac", 3)
	f.Add("\xe2\x80", 1)
	f.Add("\xf0\x9f\x99\x82\xf0\x9f", 2)
	f.Fuzz(func(t *testing.T, text string, size int) {
		var out bytes.Buffer
		cleaner := NewCleaner(&out)
		for part := range slices.Chunk([]byte(text), max(1, size)) {
			if n, err := cleaner.Write(part); n != len(part) || err != nil {
				t.Fatalf("%d of %d bytes are written: %v", n, len(part), err)
			}
		}
		if err := cleaner.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), lines(text); got != want {
			t.Errorf("%q in parts of %d bytes becomes %q, want %q", text, size, got, want)
		}
	})
}

// lines cleans each line of a text and keeps tabs.
func lines(text string) string {
	split := strings.Split(text, "\n")
	for i, line := range split {
		fields := strings.Split(line, "\t")
		for j := range fields {
			fields[j] = Clean(fields[j])
		}
		split[i] = strings.Join(fields, "\t")
	}
	return strings.Join(split, "\n")
}

// Complete characters are written at once, because a user waits for them.
func TestCleanerKeepsNothingBack(t *testing.T) {
	var out bytes.Buffer
	cleaner := NewCleaner(&out)
	for _, step := range []struct{ write, shown string }{{"looking", "looking"}, {" …\xe2", "looking …"},
		{"\x80\xa6", "looking ……"}, {"\xe2\x80", "looking ……"}} {
		if _, err := io.Copy(cleaner, iotest.OneByteReader(strings.NewReader(step.write))); err != nil ||
			out.String() != step.shown {
			t.Errorf("after %q the output is %q, want %q: %v", step.write, out.String(), step.shown, err)
		}
	}
	if err := cleaner.Close(); err != nil || out.String() != "looking ……??" {
		t.Errorf("at the end the output is %q: %v", out.String(), err)
	}
	if err := cleaner.Close(); err != nil || out.String() != "looking ……??" {
		t.Errorf("closed twice: %q: %v", out.String(), err)
	}
}

// full is a writer that fails.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestCleanerPassesErrorsOn(t *testing.T) {
	cleaner := NewCleaner(full{})
	if n, err := cleaner.Write([]byte("a")); n != 0 || !errors.Is(err, errFull) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := cleaner.Write([]byte("\xe2")); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := cleaner.Close(); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"short":              {"abc", 3, "abc"},
		"long":               {"abcdefgh", 6, "abc…"},
		"inside a character": {"ééééé", 8, "éé…"},
	} {
		if got := Cut(tc.text, tc.limit, "…"); got != tc.want || len(got) > tc.limit || !utf8.ValidString(got) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("interface bönd0 is down", 10)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 3 + (limit&0xff+0x100)&0xff
		text = strings.ToValidUTF8(text, "\uFFFD")
		got := Cut(text, limit, "…")
		if !utf8.ValidString(got) || len(got) > limit || !strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
			t.Errorf("Cut(%q, %d) is %q", text, limit, got)
		}
	})
}

func TestMessage(t *testing.T) {
	words := strings.Repeat("word ", 300)
	for name, tc := range map[string]struct{ text, want string }{
		"short":              {"public network 1 is full", "public network 1 is full"},
		"as long as allowed": {strings.Repeat("x", MessageLimit), strings.Repeat("x", MessageLimit)},
		"at a word":          {words, strings.TrimSpace(words[:5*204]) + "…"},
		"at the end of one":  {strings.Repeat("x", 1021) + " y z", strings.Repeat("x", 1021) + "…"},
		"without words":      {strings.Repeat("x", 2048), strings.Repeat("x", 1021) + "…"},
	} {
		if got := Message(tc.text); got != tc.want || len(got) > MessageLimit {
			t.Errorf("%s: %d bytes, %q, want %q", name, len(got), got, tc.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for value, want := range map[string]string{
		"ASH":                    `"ASH"`,
		"a\x1b[31m\"b":           `"a\x1b[31m\"b"`,
		strings.Repeat("x", 100): `"` + strings.Repeat("x", 61) + `…"`,
	} {
		if got := Quote(value); got != want {
			t.Errorf("Quote(%q) is %s, want %s", value, got, want)
		}
	}
}

//proves:known-bugs/unstable-errors
func TestStable(t *testing.T) {
	for in, want := range map[string]string{
		"list IP blocks: no answer: read tcp 10.0.0.1:40312->203.0.113.9:443: i/o timeout": "list IP blocks: " +
			"no answer: read tcp 203.0.113.9:443: i/o timeout",
		"read tcp [2001:db8::1]:40312->[2001:db8::2]:443: reset": "read tcp [2001:db8::2]:443: reset",
		"Location XYZ is not on sale":                            "Location XYZ is not on sale",
	} {
		if got := Stable(in); got != want {
			t.Errorf("Stable(%q) = %q, want %q", in, got, want)
		}
	}
}
