package reference

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/vip"
)

const (
	// findingPages is the directory of the pages of findings, below docs.
	findingPages = "reference/findings"
	notice       = "<!-- Written by `make docs` from the declarations of the checks; change those. -->\n"
)

// Findings returns the page that lists all findings and the page of each, by their paths below the directory docs. They
// are written from the declarations of the findings and the faults that the checks are tested with.
func Findings(root string) (map[string]string, error) {
	examples, err := Examples(root)
	if err != nil {
		return nil, err
	}
	for _, o := range observations() {
		f := vip.Evaluate(o)
		examples[f.ID] = append(examples[f.ID], f)
	}
	entries := diagnose.Entries()
	pages := map[string]string{findingPages + ".md": index(entries)}
	for _, e := range entries {
		pages[path.Join(findingPages, fileOf(e.ID))] = page(e, byReason(e, examples[e.ID]))
	}
	return pages, nil
}

func fileOf(id check.ID) string { return strings.ToLower(string(id)) + ".md" }

// byReason keeps one example of each reason, the worst, in the order in which the reasons are declared.
func byReason(e diagnose.Entry, examples []check.Finding) []check.Finding {
	var chosen []check.Finding
	for _, reason := range e.Reasons {
		worst := check.Finding{}
		for _, f := range examples {
			if f.Reason == reason && (worst.Reason == "" || f.Status == check.Fail && worst.Status != check.Fail) {
				worst = f
			}
		}
		if worst.Reason != "" {
			chosen = append(chosen, worst)
		}
	}
	return chosen
}

func index(entries []diagnose.Entry) string {
	var b strings.Builder
	b.WriteString(notice)
	b.WriteString(`# Findings

What ` + "`phoenixnap-agent diagnose`" + ` prints, what the conditions ` + "`phoenixnap.com/VLANReady`" + ` and ` +
		"`phoenixnap.com/AnnouncementHealthy`" + ` are made of, and the
label ` + "`id`" + ` of the metric ` + "`phoenixnap_agent_check`" +
		`. Each finding has a page with its meaning, likely causes and fixes; ` +
		"`phoenixnap-agent diagnose explain PN301`" + `
prints the same. On a node, ` + "`diagnose`" + ` fills that node's own names and addresses into the fixes; see
[a broken VLAN](../guides/broken-vlan.md).

A check that depends on a failed check is skipped, and listed below that check. A failure of severity error turns ` +
		`the condition False; a warning does not. The number
of a finding never changes its meaning.

| outcome | meaning | exit code |
|---|---|---|
| OK, SKIP | healthy, not applicable | 0 |
| WARN | worth a look; traffic may flow | 0, with ` + "`--strict`" + ` 1 |
| FAIL | the node cannot carry traffic of the public network as it is | 1 |
| UNKNOWN | could not be determined | 3 |
`)
	group := ""
	for _, e := range entries {
		if g := diagnose.Group(e.ID); g != group {
			group = g
			fmt.Fprintf(&b, "\n## %s\n\n| finding | what it checks | severity | reasons |\n|---|---|---|---|\n", group)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", link(e.ID, "findings/"), e.Title, e.Severity,
			codes(e.Reasons...))
	}
	return b.String()
}

func page(e diagnose.Entry, examples []check.Finding) string {
	var b strings.Builder
	b.WriteString(notice)
	fmt.Fprintf(&b, "# %s: %s\n\n", e.ID, e.Title)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| group | %s |\n| severity | %s |\n| evidence | %s |\n", diagnose.Group(e.ID),
		e.Impact(), evidence(e))
	if len(e.DependsOn) > 0 {
		fmt.Fprintf(&b, "| evaluated when these pass | %s |\n", links(e.DependsOn))
	}
	if len(e.Reasons) > 0 {
		fmt.Fprintf(&b, "| reasons | %s |\n", codes(e.Reasons...))
	}
	fmt.Fprintf(&b, "\n## Meaning\n\n%s\n", e.Meaning)
	if len(e.Causes) > 0 {
		b.WriteString("\n## Likely causes\n\n")
		for _, cause := range e.Causes {
			fmt.Fprintf(&b, "- %s\n", cause)
		}
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "\n## How to fix\n\n%s\n", e.Remedy)
	}
	sampleFix(&b, examples)
	outputs(&b, examples)
	b.WriteString("\n[All findings](../findings.md)\n")
	return b.String()
}

func evidence(e diagnose.Entry) string {
	if e.Wire {
		return "answers of other machines; one bad sample proves nothing, so a second must confirm it"
	}
	return "the node's own kernel and what the controller published; one sample is enough"
}

// sampleFix shows how to fix the example that has fixes for the most tools, with each of them.
func sampleFix(b *strings.Builder, examples []check.Finding) {
	if len(examples) == 0 {
		return
	}
	most := slices.MaxFunc(examples, func(x, y check.Finding) int { return tools(x) - tools(y) })
	if tools(most) == 0 {
		return
	}
	fmt.Fprintf(b, "\nHere for `%s`, with sample values (`diagnose` fills in those of the node):\n", most.Reason)
	last := check.AnyTool
	for _, fix := range most.Fixes {
		if fix.Tool == check.AnyTool {
			continue
		}
		if fix.Tool != last {
			fmt.Fprintf(b, "\n### %s\n", fix.Tool)
		}
		last = fix.Tool
		b.WriteString("\n" + strings.TrimSuffix(steps(fix), "\n"))
	}
}

// tools counts the fixes that belong to one tool.
func tools(f check.Finding) int {
	n := 0
	for _, fix := range f.Fixes {
		if fix.Tool != check.AnyTool {
			n++
		}
	}
	return n
}

// outputs shows each reason as diagnose prints it.
func outputs(b *strings.Builder, examples []check.Finding) {
	if len(examples) == 0 {
		return
	}
	b.WriteString("\n## Example output\n")
	for _, f := range examples {
		f.Doc = ""
		fmt.Fprintf(b, "\n`%s`:\n\n```text\n%s```\n", f.Reason, diagnose.FindingText(f, check.IPRoute2))
	}
}

func link(id check.ID, below string) string { return fmt.Sprintf("[%s](%s%s)", id, below, fileOf(id)) }

func links(ids []check.ID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = link(id, "")
	}
	return strings.Join(texts, ", ")
}
