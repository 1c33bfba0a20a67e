package diagnose

import (
	"fmt"
	"io"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// Text writes the document for a person: a line for each check, and below those that are not well the cause, the
// evidence and the fix. tool chooses the fixes; empty takes the recognised renderer's, and iproute2's, which help at
// once.
func (d Document) Text(w io.Writer, tool check.Tool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Node     %s\nNetwork  %s\n", d.Node, d.Network)
	if d.APIServer != "" {
		fmt.Fprintf(&b, "API      not reached: %s\n", d.APIServer)
	}
	group := ""
	for _, f := range d.Findings {
		if g := groupOf(f.ID); g != group {
			group = g
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		writeFinding(&b, f, d.tools(tool))
	}
	fmt.Fprintf(&b, "\n%s\n", d.summary())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the diagnosis: %w", err)
	}
	return nil
}

func (d Document) tools(chosen check.Tool) []check.Tool {
	switch {
	case chosen != "":
		return []check.Tool{check.AnyTool, chosen}
	case d.Renderer != "":
		return []check.Tool{check.AnyTool, check.IPRoute2, d.Renderer}
	default:
		return []check.Tool{check.AnyTool, check.IPRoute2}
	}
}

func groupOf(id check.ID) string {
	groups := map[string]string{
		"PN0": "Published network", "PN1": "Link", "PN2": "Address", "PN3": "Gateway",
		"PN4": "Kernel settings", "PN5": "Return path", "PN6": "Announcement",
	}
	if len(id) >= 3 {
		return groups[string(id[:3])]
	}
	return ""
}

func writeFinding(b *strings.Builder, f check.Finding, tools []check.Tool) {
	fmt.Fprintf(b, "  %-7s %s %s", f.Status, f.ID, f.Title)
	switch f.Status {
	case check.OK:
		writeAfter(b, f.Observed)
		return
	case check.Skip:
		writeAfter(b, f.Because)
		return
	case check.Warn, check.Fail, check.Unknown:
	default:
	}
	b.WriteString("\n")
	writeField(b, "cause", f.Cause)
	writeField(b, "expected", f.Expected)
	writeField(b, "seen", f.Observed)
	for _, fix := range f.Fixes {
		for _, tool := range tools {
			if fix.Tool == tool {
				writeFix(b, fix)
			}
		}
	}
	writeField(b, "more", f.Doc)
}

func writeAfter(b *strings.Builder, text string) {
	if text != "" {
		fmt.Fprintf(b, ": %s", text)
	}
	b.WriteString("\n")
}

func writeField(b *strings.Builder, name, text string) {
	if text != "" {
		fmt.Fprintf(b, "          %-9s %s\n", name, text)
	}
}

func writeFix(b *strings.Builder, fix check.Fix) {
	label := "fix"
	if fix.Tool != check.AnyTool {
		label = "fix with " + string(fix.Tool)
	}
	fmt.Fprintf(b, "          %s\n", label)
	if fix.File != "" {
		fmt.Fprintf(b, "            write %s:\n", fix.File)
		for line := range strings.Lines(fix.Content) {
			fmt.Fprintf(b, "              %s", line)
		}
	}
	for _, command := range fix.Commands {
		fmt.Fprintf(b, "            $ %s\n", command)
	}
	if fix.Note != "" {
		fmt.Fprintf(b, "            (%s)\n", fix.Note)
	}
}

func (d Document) summary() string {
	count := map[check.Status]int{}
	for _, f := range d.Findings {
		count[f.Status]++
	}
	return fmt.Sprintf("%d failed, %d unknown, %d warnings, %d skipped, %d ok",
		count[check.Fail], count[check.Unknown], count[check.Warn], count[check.Skip], count[check.OK])
}
