package text

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// replacement replaces a character that a terminal would interpret or not show. It is visible, so that the text is
// neither interpreted nor hidden, and it is ASCII.
const replacement = '?'

// Clean makes untrusted text safe to print as one line, or as a part of one: conditions, annotations, names and answers
// of the API server may contain anything. Every kind of space, including a line feed, becomes one space. "?" replaces
// every other character that is not printable (unicode.IsPrint: controls of ECMA-48 such as ESC, formats such as
// U+202E, which reverses the text direction), has no width (Default_Ignorable_Code_Point of UAX 44, variation
// selectors) or is invalid UTF-8. So an escape sequence has no effect, and the rest of it stays readable.
func Clean(text string) string { return strings.Map(clean, text) }

func clean(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == utf8.RuneError, !unicode.IsPrint(r),
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
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

// Cleaner makes a stream of text safe for a terminal as Clean does, but keeps line feeds and tabs. It must be used by
// one goroutine only.
type Cleaner struct {
	to io.Writer
	// begun is the beginning of a character whose end has not been written yet.
	begun []byte
}

// NewCleaner returns a Cleaner that writes to a writer.
func NewCleaner(to io.Writer) *Cleaner { return &Cleaner{to: to} }

// Write cleans and writes p, except for an incomplete character at its end. Its errors are those of the underlying
// writer; p then counts as not written.
func (c *Cleaner) Write(p []byte) (int, error) {
	text := slices.Concat(c.begun, p)
	whole := len(text) - unfinished(text)
	c.begun = text[whole:]
	if err := c.write(text[:whole]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the rest of an incomplete character. It returns errors of the underlying writer, which it does not
// close.
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

// unfinished returns how many bytes at the end of text begin a UTF-8 character that more bytes could complete.
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
