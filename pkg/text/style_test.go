package text

import (
	"errors"
	"io"
	"testing"
)

func TestFor(t *testing.T) {
	type environment = map[string]string
	for name, tc := range map[string]struct {
		terminal    bool
		columns     int
		environment environment
		want        Style
	}{
		"no terminal": {false, 0, environment{"TERM": "xterm"}, Style{Width: 80}},
		"terminal":    {true, 132, environment{"TERM": "xterm"}, Style{Color: true, Width: 132}},
		"narrow":      {true, 40, environment{"TERM": "xterm"}, Style{Color: true, Width: 80}},
		"NO_COLOR":    {true, 132, environment{"TERM": "xterm", "NO_COLOR": "1"}, Style{Width: 132}},
		"empty NO_COLOR": {true, 132, environment{"TERM": "xterm", "NO_COLOR": ""},
			Style{Color: true, Width: 132}},
		"dumb":             {true, 132, environment{"TERM": "dumb"}, Style{Width: 132}},
		"no TERM":          {true, 132, nil, Style{Width: 132}},
		"LANG":             {false, 0, environment{"LANG": "en_US.UTF-8"}, Style{Unicode: true, Width: 80}},
		"another spelling": {false, 0, environment{"LANG": "de_DE.utf8"}, Style{Unicode: true, Width: 80}},
		"Latin-1":          {false, 0, environment{"LANG": "de_DE.ISO-8859-1"}, Style{Width: 80}},
		"LC_ALL outweighs": {false, 0, environment{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, Style{Width: 80}},
		"empty LC_ALL does not": {false, 0, environment{"LC_ALL": "", "LC_CTYPE": "C.UTF-8"},
			Style{Unicode: true, Width: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			got := For(tc.terminal, tc.columns, func(name string) (string, bool) {
				value, set := tc.environment[name]
				return value, set
			})
			if got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

// descriptor is a writer with a file descriptor.
type descriptor struct{ io.Writer }

func (descriptor) Fd() uintptr { return 7 }

// Only a writer with a file descriptor can be a terminal, and it is one if it has a size.
func TestForWriter(t *testing.T) {
	lookUp := func(name string) (string, bool) {
		value, set := map[string]string{"TERM": "xterm"}[name]
		return value, set
	}
	sized := func(fd int) (int, int, error) {
		if fd != 7 {
			t.Errorf("the size of descriptor %d was asked for", fd)
		}
		return 132, 40, nil
	}
	unsized := func(int) (int, int, error) { return 0, 0, errors.New("inappropriate ioctl for device") }
	for name, tc := range map[string]struct {
		w    io.Writer
		size func(int) (int, int, error)
		want Style
	}{
		"a terminal": {descriptor{}, sized, Style{Color: true, Width: 132}},
		"a file":     {descriptor{}, unsized, Style{Width: 80}},
		"a buffer":   {io.Discard, sized, Style{Width: 80}},
	} {
		if got := ForWriter(tc.w, tc.size, lookUp); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestPaint(t *testing.T) {
	plain := Style{}
	rich := Style{Color: true, Unicode: true}
	if got := plain.Glyph("✔", "+") + plain.Heading("a"); got != "+a" {
		t.Errorf("plain: %q", got)
	}
	if got := rich.Glyph("✔", "+") + rich.Paint("a", "32"); got != "✔\x1b[32ma\x1b[0m" {
		t.Errorf("rich: %q", got)
	}
}

func TestSome(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"a", "b"}, "a, b"},
		{[]string{"a", "b", "c", "d"}, "a, b and 2 more"},
	} {
		if got := Some(tc.names, 2); got != tc.want {
			t.Errorf("Some(%q, 2) = %q, want %q", tc.names, got, tc.want)
		}
	}
}
