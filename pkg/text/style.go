// Package text says how text is written for a person: in colours or not, with ticks or ASCII, how wide; and makes text of
// others harmless to a terminal.
package text

import "strings"

// MinWidth is the narrowest text that is written, in columns: a terminal that is narrower wraps by itself.
const MinWidth = 80

// Style is how text is written.
type Style struct {
	// Color marks outcomes by colours (ECMA-48). Words tell the same without.
	Color bool
	// Unicode allows ticks and crosses.
	Unicode bool
	// Width is the number of columns to wrap at; less than 80 counts as 80.
	Width int
}

// For is the style that suits a terminal of a number of columns, or what is no terminal (zero columns): colours only on a
// terminal and unless NO_COLOR is set (no-color.org), ticks where the locale is UTF-8, as wide as the terminal. lookUp reads
// the environment.
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

// Glyph is the one that may be written.
func (s Style) Glyph(unicode, ascii string) string {
	if s.Unicode {
		return unicode
	}
	return ascii
}

// An SGR escape (ECMA-48, section 8.3.117) begins and ends with these; its parameters stand between.
const escape, escapeEnd = "\x1b[", "m"

// Paint colours text; color holds the parameters of SGR (ECMA-48, section 8.3.117).
func (s Style) Paint(text, color string) string {
	if !s.Color {
		return text
	}
	return escape + color + escapeEnd + text + escape + "0" + escapeEnd
}

// Heading makes text bold.
func (s Style) Heading(text string) string { return s.Paint(text, "1") }
