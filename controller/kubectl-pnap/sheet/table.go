package sheet

import (
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/textstyle"
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
			widths[i] = max(widths[i], textstyle.Columns(cell))
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
			b.WriteString(cell + strings.Repeat(" ", widths[i]-textstyle.Columns(cell)) + gap)
		}
		b.WriteString(strings.Join(textstyle.Wrap(row[last], max(s.width()-indent, 20)), "\n"+strings.Repeat(" ", indent)))
		b.WriteString("\n")
	}
	return b.String()
}

// paragraph wraps a text, every line after the first indented.
func (s Style) paragraph(text string) string {
	return strings.Join(textstyle.Wrap(text, s.width()-len(gap)), "\n"+gap) + "\n"
}
