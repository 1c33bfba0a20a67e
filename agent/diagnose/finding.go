package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

const (
	// below is the indentation of what stands below a finding, beneath its title.
	below = 6
	// beneath is the indentation of what is to be copied.
	beneath = below + 2
)

// chooser says which fixes a person sees.
type chooser struct {
	// tools are those whose fixes are shown.
	tools []check.Tool
	// unknown tells that nobody named a tool and none was recognised, so that no fix shown outlasts a reboot.
	unknown bool
}

func (d Document) chooser(chosen check.Tool) chooser {
	switch {
	case chosen != "":
		return chooser{tools: []check.Tool{chosen}}
	case d.Renderer == "":
		return chooser{tools: []check.Tool{check.IPRoute2}, unknown: true}
	default:
		return chooser{tools: []check.Tool{check.IPRoute2, d.Renderer}}
	}
}

// lasting are the tools whose configuration outlives a reboot.
func lasting() []check.Tool {
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
	p.prose("  "+p.style.outcome(f.Status)+" ", len(check.Unknown)+5, text)
	if f.Status == check.OK || f.Status == check.Skip {
		return
	}
	p.field(below, "cause", f.Cause)
	p.field(below, "expected", f.Expected)
	p.field(below, "seen", f.Observed)
	if follow := d.consequences(f.ID); follow != "" {
		p.field(below, "hides", follow+" (judged when this is mended)")
	}
	choose.write(p, f.Fixes)
	p.field(below, "more", f.Doc)
}

func after(text, more string) string {
	if more == "" {
		return text
	}
	return text + ": " + more
}

// write writes the fixes of the tools that were chosen, those for any tool first.
func (c chooser) write(p *page, fixes []check.Fix) {
	for _, fix := range fixes {
		if fix.Tool == check.AnyTool {
			writeFix(p, "fix", fix)
		}
	}
	outlasts := false
	for _, tool := range c.tools {
		for _, fix := range fixes {
			if fix.Tool == tool {
				writeFix(p, headingOf(tool), fix)
				outlasts = outlasts || slices.Contains(lasting(), tool)
			}
		}
	}
	if c.unknown && !outlasts && slices.ContainsFunc(fixes, func(f check.Fix) bool { return slices.Contains(lasting(), f.Tool) }) {
		p.field(below, "to last", "run this again with --fix netplan, networkmanager, ifupdown or networkd, whichever sets this machine's network up")
	}
}

func headingOf(tool check.Tool) string {
	if tool == check.IPRoute2 {
		return "fix at once"
	}
	return "fix to last, with " + string(tool)
}

func writeFix(p *page, heading string, fix check.Fix) {
	if len(fix.Commands) == 0 && fix.File == "" {
		p.field(below, heading, fix.Note)
		return
	}
	p.prose(strings.Repeat(" ", below), below, heading+noted(fix.Note)+":")
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
}

func noted(note string) string {
	if note == "" {
		return ""
	}
	return " (" + note + ")"
}
