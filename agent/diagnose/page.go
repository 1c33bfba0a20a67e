package diagnose

import (
	"fmt"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// minColumn is the narrowest column of wrapped text.
const minColumn = 20

// page is text that is being written: wrapped prose, and lines to copy that are never wrapped.
type page struct {
	strings.Builder
	style Style
}

// prose writes text behind a prefix that takes columns columns, wrapped, with the further lines indented alike.
func (p *page) prose(prefix string, columns int, s string) {
	lines := text.Wrap(text.Clean(s), max(minColumn, p.style.width()-columns))
	for i, line := range lines {
		if i > 0 {
			prefix = strings.Repeat(" ", columns)
		}
		p.line(prefix + line)
	}
}

// copied writes a line that a person copies: a command, or a line of a file.
func (p *page) copied(columns int, s string) {
	p.line(strings.Repeat(" ", columns) + text.Clean(strings.TrimRight(s, "\n")))
}

func (p *page) line(s string) { fmt.Fprintln(p, strings.TrimRight(s, " ")) }
