package automation

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// form is an issue form (https://docs.github.com/en/communities, syntax for issue forms).
type form struct {
	Name, Description string
	Body              []field
}

type field struct {
	Type, ID    string
	Attributes  struct{ Label, Description, Value, Render string }
	Validations struct{ Required bool }
}

func formOf(t *testing.T, name string) form {
	t.Helper()
	var f form
	if err := yaml.Unmarshal([]byte(read(t, ".github/ISSUE_TEMPLATE/"+name)), &f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
		t.Fatalf("%s has no name, description or body", name)
	}
	ids := map[string]bool{}
	for _, field := range f.Body {
		if !slices.Contains([]string{"markdown", "textarea", "input", "dropdown", "checkboxes"}, field.Type) {
			t.Errorf("%s: GitHub knows no field of type %q", name, field.Type)
		}
		if field.Type != "markdown" && (field.ID == "" || ids[field.ID] || field.Attributes.Label == "") {
			t.Errorf("%s: the field %q has no label, or its ID is not unique", name, field.ID)
		}
		ids[field.ID] = true
	}
	return f
}

// TestBugFormAsksForADiagnosis: without it, the first answer to a bug would be a question.
func TestBugFormAsksForADiagnosis(t *testing.T) {
	wanted := []string{"kubectl pnap version", "kubectl version", "kubectl pnap status",
		"phoenixnap-agent diagnose -o json", "expect"}
	for _, field := range formOf(t, "bug.yml").Body {
		if !field.Validations.Required {
			continue
		}
		text := field.Attributes.Label + field.Attributes.Description + field.Attributes.Value
		wanted = slices.DeleteFunc(wanted, func(what string) bool { return strings.Contains(text, what) })
	}
	if len(wanted) > 0 {
		t.Errorf("no required field of the form asks for %q", wanted)
	}
	formOf(t, "feature.yml")
}

// ours are links to a file of the repository on GitHub.
var ours = regexp.MustCompile(`github\.com/phoenixnap/k8s-cloud-provider-bmc/blob/main/([\w./-]+)`)

// TestFormsLinkToPages: GitHub shows the forms outside of the repository, so their links are absolute.
func TestFormsLinkToPages(t *testing.T) {
	forms, err := filepath.Glob(filepath.Join(root, ".github/ISSUE_TEMPLATE/*.yml"))
	if err != nil || len(forms) < 3 {
		t.Fatalf("forms %q, %v", forms, err)
	}
	followed := 0
	for _, form := range forms {
		for _, match := range ours.FindAllStringSubmatch(read(t, ".github/ISSUE_TEMPLATE/"+filepath.Base(form)), -1) {
			followed++
			if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", form, match[1])
			}
		}
	}
	if followed < 3 {
		t.Errorf("only %d links found; the pattern is out of date", followed)
	}
}

// TestOwnersAreOfFiles: a line of CODEOWNERS that matches nothing is out of date; the first one is for everything.
func TestOwnersAreOfFiles(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(read(t, ".github/CODEOWNERS")), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" || line[0] == '#' })
	for i, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "@") || (i == 0) != (fields[0] == "*") {
			t.Errorf("CODEOWNERS: %q", line)
			continue
		}
		if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(fields[0], "*"))); err != nil {
			t.Errorf("CODEOWNERS: there is no %s", fields[0])
		}
	}
}

// TestChangelogIsInForm: what is not released is first; each release has its number and date.
func TestChangelogIsInForm(t *testing.T) {
	heading := regexp.MustCompile(`^## \[(Unreleased|\d+\.\d+\.\d+[\w.-]*)\]( - \d{4}-\d{2}-\d{2})?$`)
	kinds := []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	var versions []string
	for line := range strings.Lines(read(t, "CHANGELOG.md")) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "### "); ok && !slices.Contains(kinds, kind) {
			t.Errorf("CHANGELOG.md: %q is none of %q", kind, kinds)
		}
		if !strings.HasPrefix(line, "## ") {
			continue
		}
		match := heading.FindStringSubmatch(line)
		if match == nil || (match[1] == "Unreleased") != (match[2] == "") {
			t.Errorf("CHANGELOG.md: %q is not of the form ## [1.2.3] - 2027-01-31", line)
			continue
		}
		versions = append(versions, match[1])
	}
	if len(versions) == 0 || versions[0] != "Unreleased" {
		t.Errorf("CHANGELOG.md does not begin with Unreleased: %q", versions)
	}
}
