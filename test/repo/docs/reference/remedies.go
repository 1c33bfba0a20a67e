package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
)

// Remedy is advice that a program prints for one case.
type Remedy struct {
	// Kind is "finding", "event" (a Warning) or "refusal".
	Kind string
	// Reason is the CamelCase word of the case, Name that of its constant; a finding has only the word.
	Reason, Name string
	// Tool is what a fix of a finding is written for; empty elsewhere.
	Tool check.Tool
	// Package declares the event, as several may use one word; empty elsewhere.
	Package string
}

// String is how the list of followed remedies names it, such as "finding WrongVLANID netplan".
func (r Remedy) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Kind, r.Reason, r.Tool) + r.Package)
}

// Remedies returns all advice that is printed, sorted: each fix of each finding with which the checks are tested, for
// each tool, and that of each Warning and each refusal that the code declares.
func Remedies(root string) ([]Remedy, error) {
	examples, err := printed(root)
	if err != nil {
		return nil, err
	}
	all := map[Remedy]bool{}
	for _, f := range slices.Concat(slices.Collect(maps.Values(examples))...) {
		for _, fix := range f.Fixes {
			all[Remedy{Kind: "finding", Reason: f.Reason, Tool: fix.Tool}] = true
		}
	}
	constants, err := Constants(root, "agent", "controller")
	if err != nil {
		return nil, err
	}
	for _, c := range constants {
		switch {
		case objectOfEvent(c) != "" && typeOfEvent(c) == "Warning":
			all[Remedy{Kind: "event", Reason: c.Value, Name: c.Name, Package: c.Package}] = true
		case strings.HasPrefix(c.Block, "Why something is refused"):
			all[Remedy{Kind: "refusal", Reason: c.Value, Name: c.Name}] = true
		}
	}
	byName := func(a, b Remedy) int { return strings.Compare(a.String(), b.String()) }
	return slices.SortedFunc(maps.Keys(all), byName), nil
}

// printed are the findings with which the checks are tested, those of announcements included.
func printed(root string) (map[check.ID][]check.Finding, error) {
	examples, err := Examples(root)
	if err != nil {
		return nil, err
	}
	announcements, err := observations()
	if err != nil {
		return nil, err
	}
	for _, o := range announcements {
		f := vip.Evaluate(o)
		examples[f.ID] = append(examples[f.ID], f)
	}
	return examples, nil
}
