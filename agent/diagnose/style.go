package diagnose

import (
	"io"
	"os"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// minWidth is the narrowest text that is written: a terminal that is narrower wraps by itself.
const minWidth = 80

// Style is how text is written.
type Style struct {
	// Color marks outcomes by colours (ECMA-48). Words tell the same without.
	Color bool
	// Unicode allows ticks and crosses.
	Unicode bool
	// Width is the number of columns to wrap at; less than 80 counts as 80.
	Width int
}

// StyleFor is the style that suits a writer: colours only on a terminal and unless NO_COLOR is set (no-color.org), ticks
// where the locale is UTF-8, as wide as the terminal.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) Style {
	style := Style{Unicode: unicodeLocale(lookUp), Width: minWidth}
	file, isFile := w.(*os.File)
	if !isFile {
		return style
	}
	columns, isTerminal := terminal(file)
	if !isTerminal {
		return style
	}
	style.Width = max(minWidth, columns)
	term, _ := lookUp("TERM")
	noColor, _ := lookUp("NO_COLOR")
	style.Color = noColor == "" && term != "" && term != "dumb"
	return style
}

// unicodeLocale follows locale(7): the first variable that is set and not empty decides.
func unicodeLocale(lookUp func(string) (string, bool)) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value, _ := lookUp(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

func (s Style) width() int { return max(minWidth, s.Width) }

// outcome writes an outcome as a glyph and a word, padded so that all are of one width.
func (s Style) outcome(status check.Status) string {
	glyph, ascii, color := "?", "?", "36"
	switch status {
	case check.OK:
		glyph, ascii, color = "✔", "+", "32"
	case check.Warn:
		glyph, ascii, color = "!", "!", "33"
	case check.Fail:
		glyph, ascii, color = "✖", "x", "1;31"
	case check.Skip:
		glyph, ascii, color = "–", "-", "2"
	case check.Unknown:
	}
	if !s.Unicode {
		glyph = ascii
	}
	padding := strings.Repeat(" ", len(check.Unknown)-len(status))
	return s.paint(glyph+" "+string(status), color) + padding
}

func (s Style) paint(text, color string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (s Style) heading(text string) string { return s.paint(text, "1") }
