// Package check compares what a node's kernel and wire show with what the controller published about the public
// network: a pure function from values to findings, each with cause, evidence and fix.
package check

import (
	"slices"
	"strings"
)

// Check is one entry of the catalogue; each group has its own file. A number is never reused for another check.
type Check struct {
	ID       ID
	Title    string
	Severity Severity
	// DependsOn names the checks without which this one has no meaning.
	DependsOn []ID
	// Wire marks evidence that comes from other machines' answers.
	Wire bool
	// Meaning is what holds when the check passes, and why it matters.
	Meaning string
	// Causes are the likely causes when it does not pass.
	Causes []string
	// Remedy is the general fix; the fixes of a finding use the node's own names and values.
	Remedy string
	// Reasons are all that a finding of this check may have.
	Reasons  []string
	evaluate func(view) Finding
}

// Catalogue lists all checks in the order of their evaluation: causes before consequences.
func Catalogue() []Check {
	return slices.Concat(publishedChecks, linkChecks, addressChecks, gatewayChecks, kernelChecks, routeChecks)
}

// declare adds what the catalogue declares to what the evaluation found.
func (c Check) declare(f Finding) Finding {
	f.ID = c.ID
	f.Title = c.Title
	f.Severity = c.Severity
	f.Wire = c.Wire
	f.DependsOn = c.DependsOn
	f.Doc = DocOf(c.ID)
	return f
}

// pages is where the documentation of the findings can be read.
const pages = "https://github.com/phoenixnap/k8s-cloud-provider-bmc/blob/main/docs/reference/findings/"

// DocOf is the URL of a finding's page in the documentation.
func DocOf(id ID) string { return pages + strings.ToLower(string(id)) + ".md" }
