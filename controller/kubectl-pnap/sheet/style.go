// Package sheet writes an overview for people: tables of 80 columns, words beside glyphs.
package sheet

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// minWidth is the narrowest table that is written: a terminal that is narrower wraps by itself.
const minWidth = 80

// Style is how a sheet is written.
type Style struct {
	// Color marks outcomes by colours (ECMA-48). Words tell the same without.
	Color bool
	// Unicode allows ticks and crosses.
	Unicode bool
	// Width is the number of columns; less than 80 counts as 80.
	Width int
}

// StyleFor is the style that suits a writer: colours only on a terminal and unless NO_COLOR is set (no-color.org), ticks
// where the locale is UTF-8 (locale(7)), as wide as the terminal.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) Style {
	style := Style{Unicode: unicodeLocale(lookUp), Width: minWidth}
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return style
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		style.Width = max(minWidth, width)
	}
	terminal, _ := lookUp("TERM")
	noColor, _ := lookUp("NO_COLOR")
	style.Color = noColor == "" && terminal != "" && terminal != "dumb"
	return style
}

func unicodeLocale(lookUp func(string) (string, bool)) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value, _ := lookUp(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

// outcome is how well something is.
type outcome int

const (
	well outcome = iota
	waiting
	broken
	unknown
)

// mark writes a glyph before a word.
func (s Style) mark(o outcome, word string) string {
	glyphs := map[outcome][3]string{well: {"✔", "+", "32"}, waiting: {"!", "!", "33"}, broken: {"✖", "x", "1;31"}, unknown: {"?", "?", "36"}}
	glyph := glyphs[o][0]
	if !s.Unicode {
		glyph = glyphs[o][1]
	}
	return s.paint(glyph+" "+word, glyphs[o][2])
}

func (s Style) paint(text, color string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (s Style) heading(text string) string { return s.paint(text, "1") }

func (s Style) width() int { return max(minWidth, s.Width) }

// columns is how many columns a text takes, without the escapes of colours.
func columns(text string) int {
	for {
		begin := strings.Index(text, "\x1b[")
		if begin < 0 {
			return utf8.RuneCountInString(text)
		}
		end := strings.IndexByte(text[begin:], 'm')
		text = text[:begin] + text[begin+end+1:]
	}
}
