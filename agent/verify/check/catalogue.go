package check

import (
	"slices"
	"strings"
)

// Check is one entry of the catalogue; each group lies in a file of its own. A number is never used again for another check.
type Check struct {
	ID       ID
	Title    string
	Severity Severity
	// DependsOn names the checks without which this one has no meaning.
	DependsOn []ID
	// Wire tells that the evidence comes from other machines' answers.
	Wire bool
	// Meaning says what holds when the check passes, and why it matters.
	Meaning string
	// Causes are what is likely wrong when it does not pass.
	Causes []string
	// Remedy says in general how to mend it; the fixes of a finding say it with the node's own names and values.
	Remedy string
	// Reasons are all that a finding of this check may have.
	Reasons  []string
	evaluate func(view) outcome
}

// Catalogue lists all checks in the order in which they are judged: causes before consequences.
func Catalogue() []Check {
	return slices.Concat(publishedChecks(), linkChecks(), addressChecks(), gatewayChecks(), kernelChecks(), routeChecks())
}

func (c Check) finding() Finding {
	return Finding{
		ID: c.ID, Title: c.Title, Severity: c.Severity, Wire: c.Wire, DependsOn: c.DependsOn,
		Doc: DocOf(c.ID),
	}
}

// DocOf is the page of a finding in the documentation, relative to the root of the repository.
func DocOf(id ID) string { return "docs/reference/findings/" + strings.ToLower(string(id)) + ".md" }
