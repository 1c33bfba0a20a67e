package terminal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// draw draws what one command printed, in a terminal of 20 columns.
func draw(t *testing.T, output string) string {
	t.Helper()
	svg, err := Screen{Title: "a <title>", Description: "one & two", Columns: 20,
		Commands: []Command{{Prompt: "$", Typed: "x", Output: output}}}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	return string(svg)
}

// TestLines: what is drawn is read again, whatever it looks like.
func TestLines(t *testing.T) {
	for name, tc := range map[string]struct {
		output string
		want   []string
	}{
		"a line":                 {"hello\n", []string{"hello"}},
		"blanks keep columns":    {"  a   b\n", []string{"  a   b"}},
		"an empty line":          {"a\n\nb\n", []string{"a", "", "b"}},
		"colors":                 {"a \x1b[1;31mred\x1b[0m b\x1b[m", []string{"a red b"}},
		"dim":                    {"\x1b[2ma\x1b[0m b", []string{"a b"}},
		"tabs":                   {"\ta\tb", []string{"        a       b"}},
		"lines of a terminal":    {"a\r\nb\r\n", []string{"a", "b"}},
		"characters of XML":      {`<a href="b">&'`, []string{`<a href="b">&'`}},
		"characters of Unicode":  {"✔ 1 µs", []string{"✔ 1 µs"}},
		"longer than the screen": {"0123456789abcdefghijklmnop\nq", []string{"0123456789abcdefghijklmnop", "q"}},
		"as long as the screen":  {"0123456789abcdefghij\nq", []string{"0123456789abcdefghij", "q"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Lines([]byte(draw(t, tc.output)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]string{"$ x"}, tc.want...), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPicture: readers get what the picture promises them: a name, colors, and lines of one width.
func TestPicture(t *testing.T) {
	svg := draw(t, "\x1b[1;31mFAIL\x1b[0m 0123456789abcdefghij")
	for _, want := range []string{
		"<title id=\"title\">a &lt;title&gt;</title>", "<desc id=\"desc\">one &amp; two</desc>",
		`<text x="18.0" y="70" textLength="31.2" class="b c31">FAIL</text>`,
		`<text x="57.0" y="70" textLength="117.0">0123456789abcde</text>`,
		`<text x="18.0" y="88" textLength="39.0">fghij</text>`, "prefers-reduced-motion",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("%s is missing in\n%s", want, svg)
		}
	}
}

// TestTheNextCommandWaits: its prompt appears a second after the answer to the one before.
func TestTheNextCommandWaits(t *testing.T) {
	svg, err := Screen{Columns: 20, Commands: []Command{{"$", "a", "1"}, {"$", "b", "2"}}}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"30ms", "60ms", "1090ms", "1120ms"} {
		if !strings.Contains(string(svg), "animation-delay:"+want) {
			t.Errorf("no line appears after %s in\n%s", want, svg)
		}
	}
}

// TestWhatCannotBeDrawnIsAnError: nothing that a program printed is lost or drawn as something else.
func TestWhatCannotBeDrawnIsAnError(t *testing.T) {
	for _, output := range []string{"\x1b[2J", "\x1b[38;5;1mx", "a\rb", "\x1b[31;xm", "\a", "\xff"} {
		svg, err := Screen{Columns: 20, Commands: []Command{{"$", "x", output}}}.SVG()
		if err == nil {
			t.Errorf("%q is drawn as\n%s", output, svg)
		}
	}
}

func TestLinesOfAnotherPicture(t *testing.T) {
	for _, svg := range []string{"", "<svg></svg>", "<svg><g", "no picture"} {
		if lines, err := Lines([]byte(svg)); err == nil {
			t.Errorf("%q has the lines %q", svg, lines)
		}
	}
}
