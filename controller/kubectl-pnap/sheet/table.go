package sheet

import (
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// gap stands between two columns of a table.
const gap = "  "

// table aligns rows in columns; the last column is wrapped to the width of the sheet.
func (s Style) table(header []string, rows [][]string) string {
	painted := make([]string, len(header))
	for i, name := range header {
		painted[i] = s.heading(name)
	}
	all := append([][]string{painted}, rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], text.Columns(cell))
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
			b.WriteString(cell + strings.Repeat(" ", widths[i]-text.Columns(cell)) + gap)
		}
		b.WriteString(strings.Join(text.Wrap(row[last], max(s.width()-indent, 20)), "\n"+strings.Repeat(" ", indent)))
		b.WriteString("\n")
	}
	return b.String()
}

// paragraph wraps prose and indents every line after the first.
func (s Style) paragraph(prose string) string {
	return strings.Join(text.Wrap(prose, s.width()-len(gap)), "\n"+gap) + "\n"
}
