package diagnose

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestStyleOnATerminal asks a real pseudo-terminal, and a file that is none.
func TestStyleOnATerminal(t *testing.T) {
	terminal := openTerminal(t, 132)
	narrow := openTerminal(t, 40)
	file, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for name, tc := range map[string]struct {
		file        *os.File
		environment map[string]string
		color       bool
		width       int
	}{
		"terminal":       {terminal, map[string]string{"TERM": "xterm"}, true, 132},
		"narrow":         {narrow, map[string]string{"TERM": "xterm"}, true, 80},
		"NO_COLOR":       {terminal, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false, 132},
		"empty NO_COLOR": {terminal, map[string]string{"TERM": "xterm", "NO_COLOR": ""}, true, 132},
		"dumb":           {terminal, map[string]string{"TERM": "dumb"}, false, 132},
		"no TERM":        {terminal, nil, false, 132},
		"file":           {file, map[string]string{"TERM": "xterm"}, false, 80},
	} {
		t.Run(name, func(t *testing.T) {
			if got := StyleFor(tc.file, lookUpIn(tc.environment)); got.Color != tc.color || got.Width != tc.width {
				t.Errorf("colour %t, width %d, want %t, %d", got.Color, got.Width, tc.color, tc.width)
			}
		})
	}
}

// openTerminal makes a pseudo-terminal (pty(7)) of that many columns.
func openTerminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	multiplexer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = multiplexer.Close() })
	if err := unix.IoctlSetWinsize(int(multiplexer.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return multiplexer
}

func TestOutcomesAreOfOneWidth(t *testing.T) {
	var text bytes.Buffer
	if err := documentOf("OK", "SKIP", "WARN", "UNKNOWN", "FAIL").Text(&text, Style{}, ""); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if i := strings.Index(line, "PN10"); strings.HasPrefix(line, "  ") && i > 0 && !strings.Contains(line, "more") && i != 12 {
			t.Errorf("the ID stands at column %d, want 12: %s", i, line)
		}
	}
	if strings.ContainsFunc(text.String(), func(r rune) bool { return r > 127 }) {
		t.Error("text without Unicode holds characters beyond ASCII")
	}
}
