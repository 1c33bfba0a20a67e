// Package sheet prints an overview for people: tables of 80 columns, with words beside glyphs.
package sheet

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// Style is how a sheet is printed.
type Style text.Style

// StyleFor returns the style for a writer, see text.For.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) Style {
	columns := 0
	isTerminal := false
	if file, ok := w.(*os.File); ok {
		width, _, err := term.GetSize(int(file.Fd()))
		columns = width
		isTerminal = err == nil
	}
	return Style(text.For(isTerminal, columns, lookUp))
}

// outcome is the state of one item.
type outcome int

const (
	healthy outcome = iota
	waiting
	broken
	unknown
)

// mark writes a glyph before a word.
func (s Style) mark(o outcome, word string) string {
	glyphs := map[outcome][3]string{
		healthy: {"✔", "+", "32"}, waiting: {"!", "!", "33"}, broken: {"✖", "x", "1;31"}, unknown: {"?", "?", "36"},
	}
	glyph := text.Style(s).Glyph(glyphs[o][0], glyphs[o][1])
	return s.paint(glyph+" "+word, glyphs[o][2])
}

func (s Style) paint(word, color string) string { return text.Style(s).Paint(word, color) }

func (s Style) heading(title string) string { return text.Style(s).Heading(title) }

func (s Style) width() int { return max(text.MinWidth, s.Width) }
