// Package text formats text for a terminal: colors, ticks or ASCII, and width. It also makes untrusted text safe for a
// terminal.
package text

import "strings"

// MinWidth is the minimum width of text, in columns: a narrower terminal wraps lines itself.
const MinWidth = 80

// Style is how text is formatted.
type Style struct {
	// Color marks outcomes with colors (ECMA-48). Words contain the same information.
	Color bool
	// Unicode allows ticks and crosses.
	Unicode bool
	// Width is the number of columns to wrap at; less than 80 counts as 80.
	Width int
}

// For returns the style for a terminal of a number of columns, or for other output (zero columns): colors only on a
// terminal and unless NO_COLOR is set (no-color.org), ticks where the locale is UTF-8, as wide as the terminal. lookUp
// reads the environment.
func For(isTerminal bool, columns int, lookUp func(string) (string, bool)) Style {
	style := Style{Unicode: unicodeLocale(lookUp), Width: max(MinWidth, columns)}
	if isTerminal {
		terminal, _ := lookUp("TERM")
		noColor, _ := lookUp("NO_COLOR")
		style.Color = noColor == "" && terminal != "" && terminal != "dumb"
	}
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

// Glyph returns the glyph for the style.
func (s Style) Glyph(unicode, ascii string) string {
	if s.Unicode {
		return unicode
	}
	return ascii
}

// An SGR escape (ECMA-48, section 8.3.117) begins and ends with these, with its parameters in between.
const escape, escapeEnd = "\x1b[", "m"

// Paint colors text; color contains the parameters of SGR (ECMA-48, section 8.3.117).
func (s Style) Paint(text, color string) string {
	if !s.Color {
		return text
	}
	return escape + color + escapeEnd + text + escape + "0" + escapeEnd
}

// Heading makes text bold.
func (s Style) Heading(text string) string { return s.Paint(text, "1") }
