package reference

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose/pages"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// recipe is a fix that a guide shows, as the agent prints it for a node of its tests.
type recipe struct {
	name   string
	id     check.ID
	reason string
	// tools that are shown; all when empty.
	tools []check.Tool
}

func recipes() []recipe {
	return []recipe{
		{name: "make-vlan-interface", id: "PN102", reason: "VLANInterfaceMissing"},
		{name: "lead-replies-back", id: "PN501", reason: "ReturnPathElsewhere", tools: []check.Tool{check.Netplan}},
	}
}

// fixes writes each recipe for each tool: table make-vlan-interface-netplan and so on.
func fixes(root string) (map[string]string, error) {
	examples, err := pages.Examples(filepath.Join(root, "agent", "verify", "check", "testdata"))
	if err != nil {
		return nil, err
	}
	written := map[string]string{}
	for _, r := range recipes() {
		i := slices.IndexFunc(examples[r.id], func(f check.Finding) bool { return f.Reason == r.reason })
		if i < 0 {
			return nil, fmt.Errorf("there is no example of %s with the reason %s", r.id, r.reason)
		}
		for _, fix := range examples[r.id][i].Fixes {
			if len(r.tools) > 0 && !slices.Contains(r.tools, fix.Tool) {
				continue
			}
			written[r.name+"-"+strings.ToLower(string(fix.Tool))] += steps(fix)
		}
	}
	return written, nil
}

// steps are the actions in their order, with those that no command does.
func steps(fix check.Fix) string {
	var b strings.Builder
	if fix.File != "" {
		fmt.Fprintf(&b, "Write to `%s`:\n\n```\n%s```\n\n", fix.File, fix.Content)
	}
	if len(fix.Commands) > 0 {
		fmt.Fprintf(&b, "```sh\n%s\n```\n\n", strings.Join(fix.Commands, "\n"))
	}
	if fix.Note != "" {
		fmt.Fprintf(&b, "Note: %s.\n\n", fix.Note)
	}
	return b.String()
}
