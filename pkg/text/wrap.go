package text

import (
	"strings"
	"unicode/utf8"
)

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
