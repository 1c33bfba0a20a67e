package diagnose

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// Style is how text is written.
type Style text.Style

// StyleFor is the style that suits a writer, see text.For.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) Style {
	columns := 0
	isTerminal := false
	if file, isFile := w.(*os.File); isFile {
		width, _, err := term.GetSize(int(file.Fd()))
		columns = width
		isTerminal = err == nil
	}
	return Style(text.For(isTerminal, columns, lookUp))
}

func (s Style) width() int { return max(text.MinWidth, s.Width) }

// outcome writes an outcome as a glyph and a word, padded so that all are of one width.
func (s Style) outcome(status check.Status) string {
	glyph := "?"
	ascii := "?"
	color := "36"
	switch status {
	case check.OK:
		glyph = "✔"
		ascii = "+"
		color = "32"
	case check.Warn:
		glyph = "!"
		ascii = "!"
		color = "33"
	case check.Fail:
		glyph = "✖"
		ascii = "x"
		color = "1;31"
	case check.Skip:
		glyph = "–"
		ascii = "-"
		color = "2"
	case check.Unknown:
	}
	glyph = text.Style(s).Glyph(glyph, ascii)
	padding := strings.Repeat(" ", len(check.Unknown)-len(status))
	return s.paint(glyph+" "+string(status), color) + padding
}

func (s Style) paint(word, color string) string { return text.Style(s).Paint(word, color) }

func (s Style) heading(title string) string { return text.Style(s).Heading(title) }
