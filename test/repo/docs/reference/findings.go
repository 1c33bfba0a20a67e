package reference

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/template"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// findingPages is the directory of the pages of findings, below docs.
const findingPages = "reference/findings"

// Findings returns the page that lists all findings and the page of each, by their paths below the directory docs. They
// are written from the declarations of the findings and the faults that the checks are tested with.
func Findings(root string) (map[string]string, error) {
	examples, err := printed(root)
	if err != nil {
		return nil, err
	}
	entries := diagnose.Entries()
	pages := map[string]string{}
	if pages[findingPages+".md"], err = render("findings.md.tpl", entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := path.Join(findingPages, fileOf(e.ID))
		if pages[name], err = page(e, byReason(e, examples[e.ID])); err != nil {
			return nil, err
		}
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

// page writes the page of a finding. It shows how to fix the example that has fixes for the most tools, with each of
// them, and each reason as diagnose prints it.
func page(e diagnose.Entry, examples []check.Finding) (string, error) {
	data := struct {
		diagnose.Entry
		Examples []check.Finding
		Fixed    string // the reason of the example
		Fixes    []check.Fix
	}{Entry: e, Examples: examples}
	for _, f := range examples {
		if fixes := ofTools(f); len(fixes) > len(data.Fixes) {
			data.Fixed = f.Reason
			data.Fixes = fixes
		}
	}
	return render("finding.md.tpl", data)
}

// ofTools are the fixes that belong to one tool.
func ofTools(f check.Finding) []check.Fix {
	return slices.DeleteFunc(slices.Clone(f.Fixes), func(fix check.Fix) bool { return fix.Tool == check.AnyTool })
}

//go:embed *.tpl
var templates embed.FS

func render(name string, data any) (string, error) {
	t, err := template.New(name).Funcs(template.FuncMap{
		"group": diagnose.Group,
		"link":  link,
		"codes": func(texts []string) string { return codes(texts...) },
		"steps": func(fix check.Fix) string { return strings.TrimSuffix(steps(fix), "\n") },
		"output": func(f check.Finding) string {
			f.Doc = ""
			return diagnose.FindingText(f, check.IPRoute2)
		},
	}).ParseFS(templates, name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, data)
	return b.String(), err
}

func link(id check.ID, below string) string { return fmt.Sprintf("[%s](%s%s)", id, below, fileOf(id)) }
