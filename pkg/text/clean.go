package text

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// replacement stands for a character that a terminal would obey or not show. It is visible, so that what was written is
// neither obeyed nor hidden, and it is ASCII.
const replacement = '?'

// Clean makes text of others harmless to write as one line, or as a part of one: conditions, annotations, names and answers
// of the API server may hold anything. Spaces of every kind, line feeds too, become one space each. Whatever else is no
// printable character (unicode.IsPrint: controls of ECMA-48 such as ESC, formats such as U+202E, which turns the direction
// of writing), takes no column (Default_Ignorable_Code_Point of UAX 44, variation selectors) or is invalid UTF-8 becomes "?".
// So an escape sequence loses what makes it one, and the rest of it stays to be read.
func Clean(text string) string { return strings.Map(clean, text) }

func clean(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == utf8.RuneError, !unicode.IsPrint(r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return replacement
	default:
		return r
	}
}

// cleanLine is clean for text of several lines.
func cleanLine(r rune) rune {
	if r == '\n' || r == '\t' {
		return r
	}
	return clean(r)
}

// Cleaner makes a stream of text harmless to a terminal as Clean does, but leaves line feeds and tabs. It is for one
// goroutine.
type Cleaner struct {
	to io.Writer
	// begun is the beginning of a character whose end was not written yet.
	begun []byte
}

// NewCleaner returns a Cleaner that writes to a writer.
func NewCleaner(to io.Writer) *Cleaner { return &Cleaner{to: to} }

// Write cleans and writes all but a character that p only begins. Its errors are those of the writer below; p then counts as
// not written.
func (c *Cleaner) Write(p []byte) (int, error) {
	text := slices.Concat(c.begun, p)
	whole := len(text) - unfinished(text)
	c.begun = text[whole:]
	if err := c.write(text[:whole]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what a character that never ended left behind. It does not close the writer below, whose errors it returns.
func (c *Cleaner) Close() error {
	rest := c.begun
	c.begun = nil
	return c.write(rest)
}

func (c *Cleaner) write(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_, err := io.WriteString(c.to, strings.Map(cleanLine, string(text)))
	return err
}

// unfinished is how many bytes at the end of text begin a character of UTF-8 that more bytes could complete.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
