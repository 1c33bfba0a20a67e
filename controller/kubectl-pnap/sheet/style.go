// Package sheet writes an overview for people: tables of 80 columns, words beside glyphs.
package sheet

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/textstyle"
)

// Style is how a sheet is written.
type Style textstyle.Style

// StyleFor is the style that suits a writer, see textstyle.For.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) Style {
	columns, isTerminal := 0, false
	if file, isFile := w.(*os.File); isFile {
		width, _, err := term.GetSize(int(file.Fd()))
		columns, isTerminal = width, err == nil
	}
	return Style(textstyle.For(isTerminal, columns, lookUp))
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
	glyph := textstyle.Style(s).Glyph(glyphs[o][0], glyphs[o][1])
	return s.paint(glyph+" "+word, glyphs[o][2])
}

func (s Style) paint(text, color string) string { return textstyle.Style(s).Paint(text, color) }

func (s Style) heading(text string) string { return textstyle.Style(s).Heading(text) }

func (s Style) width() int { return max(textstyle.MinWidth, s.Width) }
