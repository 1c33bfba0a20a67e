package sheet

import (
	"strings"
)

// gap stands between two columns of a table.
const gap = "  "

// table writes rows in columns as wide as they need, the last one wrapped to the width of the sheet.
func (s Style) table(header []string, rows [][]string) string {
	painted := make([]string, len(header))
	for i, name := range header {
		painted[i] = s.heading(name)
	}
	all := append([][]string{painted}, rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], columns(cell))
		}
	}
	indent := 0
	for _, width := range widths[:len(widths)-1] {
		indent += width + len(gap)
	}
	var b strings.Builder
	for _, row := range all {
		last := len(row) - 1
		for i, cell := range row[:last] {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-columns(cell)) + gap)
		}
		b.WriteString(strings.Join(wrap(row[last], max(s.width()-indent, 20)), "\n"+strings.Repeat(" ", indent)))
		b.WriteString("\n")
	}
	return b.String()
}

// paragraph wraps a text, every line after the first indented.
func (s Style) paragraph(text string) string {
	return strings.Join(wrap(text, s.width()-len(gap)), "\n"+gap) + "\n"
}

// wrap breaks a text at spaces into lines of at most the given number of columns; a longer word stands alone.
func wrap(text string, width int) []string {
	words := strings.Fields(text)
	if columns(text) <= width || len(words) == 0 {
		return []string{text}
	}
	var lines []string
	line := words[0]
	for _, word := range words[1:] {
		if columns(line)+1+columns(word) > width {
			lines = append(lines, line)
			line = word
			continue
		}
		line += " " + word
	}
	return append(lines, line)
}
