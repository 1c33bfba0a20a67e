// Package text formats text for a terminal: colors, ticks or ASCII, width. It also makes untrusted text safe for it.
package text

import (
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MinWidth is the minimum width of text, in columns: a narrower terminal wraps lines itself.
const MinWidth = 80

// Style is how text is formatted.
type Style struct {
	Color   bool // Color marks outcomes with colors (ECMA-48). Words contain the same information.
	Unicode bool // Unicode allows ticks and crosses
	Width   int  // the number of columns to wrap at; less than 80 counts as 80
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

// ForWriter returns the style for a writer, see For. size returns the size of the terminal behind a file descriptor, or
// an error if there is none (golang.org/x/term.GetSize).
func ForWriter(w io.Writer, size func(fd int) (columns, rows int, err error),
	lookUp func(string) (string, bool)) Style {
	file, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return For(false, 0, lookUp)
	}
	columns, _, err := size(int(file.Fd()))
	return For(err == nil, columns, lookUp)
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

// Columns returns the width of a text in columns, one for each character, without the escapes of Paint. Any other
// escape counts as its characters.
func Columns(text string) int {
	count := 0
	for text != "" {
		begin := strings.Index(text, escape)
		if begin < 0 {
			break
		}
		count += utf8.RuneCountInString(text[:begin])
		parameters := text[begin+len(escape):]
		rest := strings.TrimLeft(parameters, "0123456789;")
		if after, painted := strings.CutPrefix(rest, escapeEnd); painted {
			text = after
			continue
		}
		count += len(escape)
		text = parameters
	}
	return count + utf8.RuneCountInString(text)
}

// Wrap breaks text at spaces into lines of at most width columns; a longer word gets a separate line. Several spaces
// count as one. There is at least one line.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	columns := 0
	for _, word := range strings.Fields(text) {
		wide := Columns(word)
		switch {
		case line == "":
			line = word
			columns = wide
		case columns+1+wide <= width:
			line, columns = line+" "+word, columns+1+wide
		default:
			lines = append(lines, line)
			line = word
			columns = wide
		}
	}
	return append(lines, line)
}

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

// Cleaner makes a stream of text safe as Clean does, but keeps line feeds and tabs. It is for one goroutine only.
type Cleaner struct {
	to    io.Writer
	begun []byte // the beginning of a character whose end has not been written yet
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

// Close writes the rest of an incomplete character. Its errors are those of the writer, which it does not close.
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

// Cut shortens text to at most limit bytes, between characters; what is cut off is replaced by ellipsis.
func Cut(text string, limit int, ellipsis string) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// Some lists at most so many of the names, and how many there are beyond.
func Some(names []string, most int) string {
	said := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		said += " and " + strconv.Itoa(more) + " more"
	}
	return said
}

// MessageLimit is the maximum length in bytes of the message of a condition or an event: every watcher of the object
// keeps the one, and the API server refuses a longer note of the other.
const MessageLimit = 1024

// Message shortens the message of a condition or an event to MessageLimit bytes, between words.
func Message(text string) string {
	const ellipsis = "…"
	cut := Cut(text, MessageLimit, ellipsis)
	if cut == text {
		return text
	}
	kept := strings.TrimSuffix(cut, ellipsis)
	if end := strings.LastIndexByte(kept, ' '); end > len(kept)/2 && text[len(kept)] != ' ' {
		kept = kept[:end]
	}
	return strings.TrimRight(kept, " ") + ellipsis
}

// quoteLimit is the length in bytes beyond which Quote shortens a value: it shows which value is meant.
const quoteLimit = 64

// Quote quotes a value of a user in a message: between quotation marks, escaped and shortened.
func Quote(value string) string { return strconv.Quote(Cut(value, quoteLimit, "…")) }

// localPort is this side of a connection in the errors of package net: its port differs each time.
var localPort = regexp.MustCompile(`(?:\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.%a-z]+\]):\d+->`)

// Stable removes from the text of an error what differs between attempts: only events with equal texts are counted
// together, and a condition is written only when it differs.
func Stable(text string) string { return localPort.ReplaceAllString(text, "") }
