package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
)

const (
	// below is the indentation of the fields of a finding.
	below = 6
	// beneath is the indentation of text to copy.
	beneath = below + 2
)

// chooser decides which fixes are shown.
type chooser struct {
	// tools are those whose fixes are shown.
	tools []check.Tool
	// unknown reports that no tool was named or recognised, so that no fix shown outlasts a reboot.
	unknown bool
	// managed is what the agent keeps itself: a file of another tool would only dispute it.
	managed []string
}

// manages reports whether the agent itself manages what a finding is about.
func (c chooser) manages(id check.ID) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(string(id), prefix) }
	return slices.Contains(c.managed, "vlan") && (begins("PN1") || begins("PN2")) ||
		slices.Contains(c.managed, "return-path") && begins("PN5")
}

func (d Document) chooser(chosen check.Tool) chooser {
	switch {
	case chosen != "":
		return chooser{tools: []check.Tool{chosen}}
	case d.Renderer == "":
		return chooser{tools: []check.Tool{check.IPRoute2}, unknown: true, managed: d.Managed}
	default:
		return chooser{tools: []check.Tool{check.IPRoute2, d.Renderer}, managed: d.Managed}
	}
}

// permanentTools are the tools whose configuration outlives a reboot.
func permanentTools() []check.Tool {
	return []check.Tool{check.Netplan, check.NetworkManager, check.Ifupdown, check.Networkd}
}

func (d Document) writeFinding(p *page, f check.Finding, choose chooser) {
	text := fmt.Sprintf("%s %s", f.ID, f.Title)
	switch f.Status {
	case check.OK:
		text = after(text, f.Observed)
	case check.Skip:
		text = after(text, f.Because)
	case check.Warn, check.Fail, check.Unknown:
	}
	p.prose("  "+p.outcome(f.Status)+" ", len(check.Unknown)+5, text)
	if f.Status == check.OK || f.Status == check.Skip {
		return
	}
	p.field(below, "cause", f.Cause)
	p.field(below, "expected", f.Expected)
	p.field(below, "actual", f.Observed)
	if follow := d.consequences(f.ID); follow != "" {
		p.field(below, "blocks", follow+" (checked when this is fixed)")
	}
	choose.write(p, f)
	if f.Doc != "" {
		p.field(below, "more", "phoenixnap-agent diagnose explain "+string(f.ID))
	}
}

func after(text, more string) string {
	if more == "" {
		return text
	}
	return text + ": " + more
}

// write writes the fixes of the tools that were chosen, those for any tool first.
func (c chooser) write(p *page, f check.Finding) {
	permanent := permanentTools()
	lasts := slices.ContainsFunc(f.Fixes, func(fix check.Fix) bool { return slices.Contains(permanent, fix.Tool) })
	tools := append([]check.Tool{check.AnyTool}, c.tools...)
	if c.manages(f.ID) {
		tools = []check.Tool{check.AnyTool, check.IPRoute2}
	}
	for _, tool := range tools {
		writeFixes(p, tool, slices.DeleteFunc(slices.Clone(f.Fixes),
			func(fix check.Fix) bool { return fix.Tool != tool }))
	}
	switch {
	case lasts && c.manages(f.ID):
		p.field(below, "permanent", "the agent manages this itself (--manage); see the events of the Node for problems")
	case lasts && c.unknown:
		p.field(below, "permanent",
			"run this again with --fix netplan, networkmanager, ifupdown or networkd, depending "+
				"on what configures the network")
	}
}

// headingOf is the heading of the fixes of a tool.
func headingOf(tool check.Tool) string {
	switch tool {
	case check.AnyTool:
		return "fix"
	case check.IPRoute2:
		return "fix now"
	default:
		return "permanent fix, with " + string(tool)
	}
}

// inspects reports whether a command only shows something.
func inspects(command string) bool {
	words := strings.Fields(command)
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "cat", "hostnamectl", "tcpdump", "arping", "ethtool":
		return true
	case "phoenixnap-agent":
		return slices.Contains(words, "diagnose")
	case "ip", "bridge", "kubectl", "nft":
		return slices.Contains(words, "show") || slices.Contains(words, "get") || slices.Contains(words, "list")
	default:
		return false
	}
}

// headline is the heading of a fix that has something to copy.
func headline(fix check.Fix) string {
	if fix.File == "" && !slices.ContainsFunc(fix.Commands, func(c string) bool { return !inspects(c) }) {
		return "inspect"
	}
	return headingOf(fix.Tool)
}

// shortNote is how long a note may be to stand in the heading.
const shortNote = 50

// writeFixes writes the fixes of one tool, files before the commands that need them.
func writeFixes(p *page, tool check.Tool, fixes []check.Fix) {
	for i, fix := range fixes {
		switch copied := fix.File != "" || len(fix.Commands) > 0; {
		case !copied:
			p.field(below, headingOf(tool), fix.Note)
			continue
		case i > 0 && tool != check.AnyTool:
		case fix.Note != "" && len(fix.Note) <= shortNote:
			p.prose(strings.Repeat(" ", below), below, headline(fix)+" ("+fix.Note+"):")
			fix.Note = ""
		default:
			p.prose(strings.Repeat(" ", below), below, headline(fix)+":")
		}
		writeFix(p, fix)
	}
}

func writeFix(p *page, fix check.Fix) {
	if fix.Warning != "" {
		p.prose(strings.Repeat(" ", beneath), beneath, "first: "+fix.Warning)
	}
	if fix.File != "" {
		p.prose(strings.Repeat(" ", beneath), beneath, "write to "+fix.File+":")
		for line := range strings.Lines(fix.Content) {
			p.copied(beneath+2, line)
		}
		if len(fix.Commands) > 0 {
			p.prose(strings.Repeat(" ", beneath), beneath, "then run:")
		}
	}
	for _, command := range fix.Commands {
		p.copied(beneath+2, command)
	}
	if fix.Note != "" {
		p.prose(strings.Repeat(" ", beneath), beneath, "note: "+fix.Note)
	}
}

// FindingText is a finding as Text shows it in a document without others, not indented.
func FindingText(f check.Finding, tool check.Tool) string {
	p := &page{style: Style{Unicode: true}}
	Document{}.writeFinding(p, f, chooser{tools: []check.Tool{tool}})
	var b strings.Builder
	for line := range strings.Lines(p.String()) {
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	return b.String()
}

// Entry is the declaration of a finding, printed for a person.
type Entry struct{ check.Check }

// Entries are all findings that a diagnosis may hold, in their order.
func Entries() []Entry {
	var entries []Entry
	for _, c := range slices.Concat(check.Catalogue(), vip.Catalogue()) {
		entries = append(entries, Entry{c})
	}
	return entries
}

// EntryOf returns the entry with that ID.
func EntryOf(id check.ID) (e Entry, ok bool) {
	entries := Entries()
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.ID == id })
	if i < 0 {
		return Entry{}, false
	}
	return entries[i], true
}

// Text writes the entry for a person.
func (e Entry) Text(w io.Writer, style Style) error {
	p := &page{style: style}
	p.prose(style.Heading(string(e.ID))+" ", len(e.ID)+1, e.Title)
	p.field(2, "severity", e.Impact())
	p.field(2, "meaning", e.Meaning)
	for i, cause := range e.Causes {
		p.field(2, map[bool]string{true: "causes", false: ""}[i == 0], "- "+cause)
	}
	p.field(2, "remedy", e.Remedy)
	p.field(2, "page", check.DocOf(e.ID))
	p.line("")
	return p.writeTo(w, "write the explanation")
}

// Impact is what a failure means for the node.
func (e Entry) Impact() string {
	switch {
	case e.Severity != check.Error:
		return "warning: worth a look; no condition of the Node changes"
	case Group(e.ID) == announced:
		return "error: while it fails, the Node's condition phoenixnap.com/AnnouncementHealthy is False"
	default:
		return "error: while it fails, the Node's condition phoenixnap.com/VLANReady is False"
	}
}
