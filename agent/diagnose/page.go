package diagnose

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// minColumn is the narrowest column of wrapped text.
const minColumn = 20

// page is text that is being written: wrapped prose, and lines to copy that are never wrapped.
type page struct {
	strings.Builder
	style Style
}

// prose writes text behind a prefix that takes columns columns, wrapped, with the further lines indented alike.
func (p *page) prose(prefix string, columns int, text string) {
	lines := wrap(clean(text), max(minColumn, p.style.width()-columns))
	for i, line := range lines {
		if i > 0 {
			prefix = strings.Repeat(" ", columns)
		}
		p.line(prefix + line)
	}
}

// copied writes a line that a person copies: a command, or a line of a file.
func (p *page) copied(columns int, text string) {
	p.line(strings.Repeat(" ", columns) + clean(strings.TrimRight(text, "\n")))
}

func (p *page) line(text string) { fmt.Fprintln(p, strings.TrimRight(text, " ")) }

// wrap breaks text at spaces into lines of at most width characters; a longer word has a line of its own. There is at
// least one line.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// clean makes text harmless to a terminal: names of interfaces and messages of others may hold control characters.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case unicode.IsControl(r), r == utf8.RuneError, unicode.Is(unicode.Cf, r):
			return '?'
		default:
			return r
		}
	}, text)
}
