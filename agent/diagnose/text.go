package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// label is the width of the names of fields.
const label = 10

// Text writes the document for a person: a line for each check, and below those that do not pass the cause, the
// evidence and the fix. tool chooses the fixes; empty takes iproute2's, which work at once, and those of the recognised
// renderer, which are permanent.
func (d Document) Text(w io.Writer, style Style, tool check.Tool) error {
	d = d.Sum()
	p := &page{style: style}
	d.writeHeader(p)
	if d.Address != nil {
		d.Address.write(p)
	}
	d.writeFindings(p, d.chooser(tool))
	d.writeResult(p)
	return p.writeTo(w, "write the diagnosis")
}

func (p *page) field(indent int, name, text string) {
	if text != "" {
		p.prose(fmt.Sprintf("%*s%-*s", indent, "", label, name), indent+label, text)
	}
}

func (d Document) writeHeader(p *page) {
	node := d.Node
	if d.ServerID != "" {
		node += " (server " + d.ServerID + ")"
	}
	p.field(0, "Node", node)
	p.field(0, "Network", d.Network)
	for _, other := range d.OtherNetworks {
		p.field(0, "Also in", fmt.Sprintf("public network %s: %s (--public-network=%s)", other.Name, other.Status,
			other.Name))
	}
	p.field(0, "Interface", d.Interface)
	p.field(0, "Set up by", string(d.Renderer))
	if len(d.Managed) > 0 {
		p.field(0, "Managed", strings.Join(d.Managed, ", ")+" by the agent; see the events of the Node for problems")
	}
	if d.APIServer != "" {
		p.field(0, "API", "not (fully) asked: "+d.APIServer)
	}
}

// announced is the group of findings about addresses of Services.
const announced = "Announcement"

// groups are the headings, by the first three characters of an ID.
var groups = []struct{ prefix, heading string }{
	{"PN0", "Published network and identity"}, {"PN1", "Link"}, {"PN2", "Address"}, {"PN3", "Gateway"},
	{"PN4", "Kernel settings"}, {"PN5", "Return path"}, {"PN6", announced},
}

// Group returns the heading under which a finding stands.
func Group(id check.ID) string {
	for _, g := range groups {
		if strings.HasPrefix(string(id), g.prefix) {
			return g.heading
		}
	}
	return "Others"
}

// writeFindings writes all findings except consequences, which are listed below their cause.
func (d Document) writeFindings(p *page, choose chooser) {
	group := ""
	for _, f := range d.Findings {
		if _, consequence := consequenceOf(f); consequence && d.has(f) {
			continue
		}
		if g := Group(f.ID); g != group {
			group = g
			p.line("")
			p.line(p.style.Heading(group))
		}
		d.writeFinding(p, f, choose)
	}
}

// consequenceOf returns the cause of a finding that was skipped because of another.
func consequenceOf(f check.Finding) (check.ID, bool) {
	cause, consequence := strings.CutPrefix(f.Because, "because of ")
	return check.ID(cause), f.Status == check.Skip && consequence
}

// has reports whether the cause of a consequence is in the document.
func (d Document) has(consequence check.Finding) bool {
	cause, _ := consequenceOf(consequence)
	return slices.ContainsFunc(d.Findings, func(f check.Finding) bool {
		return f.ID == cause && f.Status != check.Skip
	})
}

// consequences lists the IDs of what was skipped because of a finding.
func (d Document) consequences(cause check.ID) string {
	var ids []string
	for _, f := range d.Findings {
		if of, consequence := consequenceOf(f); consequence && of == cause && !slices.Contains(ids, string(f.ID)) {
			ids = append(ids, string(f.ID))
		}
	}
	return strings.Join(ids, ", ")
}

// writeResult ends the text with what to fix first, so that it appears above the prompt.
func (d Document) writeResult(p *page) {
	p.line("")
	p.prose(p.outcome(d.Result.Status)+" ", len(check.Unknown)+3, d.conclusion())
	counts := d.Result.Counts
	p.line(fmt.Sprintf("%d failed, %d unknown, %s, %d skipped, %d ok", counts[check.Fail], counts[check.Unknown],
		plural(counts[check.Warn], "warning"), counts[check.Skip], counts[check.OK]))
}

func (d Document) conclusion() string {
	first := d.first()
	switch {
	case d.Result.Status == check.OK && d.Address != nil:
		return "the address is served as it should be, as far as this node sees"
	case d.Result.Status == check.OK:
		return "the node can carry traffic of the public network"
	case d.Result.Status == check.Warn:
		return fmt.Sprintf("worth a look: %s: %s", first.ID, first.Cause)
	case d.Result.Status == check.Unknown:
		return fmt.Sprintf("could not be determined: %s: %s", first.ID, first.Cause)
	default:
		return fmt.Sprintf("fix this first: %s: %s", first.ID, first.Cause)
	}
}

func (d Document) first() check.Finding {
	for _, f := range d.Findings {
		if f.ID == d.Result.FirstCause && f.Status == d.Result.Status {
			return f
		}
	}
	return check.Finding{}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Heading announces a diagnosis that differs from the one before: when it was made and what changed.
func Heading(w io.Writer, style Style, d Document, changes []string) error {
	p := &page{style: style}
	if len(changes) > 0 {
		p.line("")
	}
	p.line(style.Heading("=== " + d.Time.Format("2006-01-02 15:04:05") + " UTC ==="))
	for _, change := range changes {
		p.prose("  ", 4, change)
	}
	p.line("")
	return p.writeTo(w, "write the diagnosis")
}

// minColumn is the narrowest column of wrapped text.
const minColumn = 20

// page is text that is being written: wrapped prose, and lines to copy that are never wrapped.
type page struct {
	strings.Builder
	style Style
}

// prose writes text behind a prefix that takes columns columns, wrapped, with the further lines indented alike.
func (p *page) prose(prefix string, columns int, s string) {
	lines := text.Wrap(text.Clean(s), max(minColumn, max(text.MinWidth, p.style.Width)-columns))
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

// writeTo writes the page; what says for an error what was written.
func (p *page) writeTo(w io.Writer, what string) error {
	if _, err := io.WriteString(w, p.String()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (p *page) line(s string) { fmt.Fprintln(p, strings.TrimRight(s, " ")) }

// Style is how text is written.
type Style = text.Style

// StyleFor is the style that suits a writer, see text.ForWriter.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) Style {
	return text.ForWriter(w, term.GetSize, lookUp)
}

// outcome writes an outcome as a glyph and a word, padded so that all are of one width.
func (p *page) outcome(status check.Status) string {
	o := outcomes[status]
	padding := strings.Repeat(" ", len(check.Unknown)-len(status))
	return p.style.Paint(p.style.Glyph(o.glyph, o.ascii)+" "+string(status), o.colour) + padding
}
