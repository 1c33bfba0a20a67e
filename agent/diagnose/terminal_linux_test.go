package diagnose

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

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
	if err := unix.IoctlSetWinsize(int(multiplexer.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return multiplexer
}
