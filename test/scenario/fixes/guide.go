package fixes

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Candidate is what a user does about a finding, or by a guide, with one tool.
type Candidate struct {
	Name  string
	Fixes []check.Fix
}

var (
	recipe  = regexp.MustCompile("(?s)<!-- begin ([a-z-]+): written by make docs -->\n(.*?)<!-- end ")
	written = regexp.MustCompile("(?s)Write to `([^`]+)`:\n\n```\n(.*?)```\n")
	typed   = regexp.MustCompile("(?s)```sh\n(.*?)\n```\n")
)

// Guide returns the recipes for a tool of the guide to the VLAN interface, as they stand on the page: first the files,
// then the commands. root is that of the source tree.
func Guide(root string, tool check.Tool) ([]Candidate, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "guides", "network.md"))
	if err != nil {
		return nil, fmt.Errorf("read the guide: %w", err)
	}
	var found []Candidate
	for _, match := range recipe.FindAllStringSubmatch(string(page), -1) {
		if !strings.HasSuffix(match[1], "-"+string(tool)) {
			continue
		}
		c := Candidate{Name: "guide " + match[1]}
		for _, file := range written.FindAllStringSubmatch(match[2], -1) {
			c.Fixes = append(c.Fixes, check.Fix{Tool: tool, File: file[1], Content: file[2]})
		}
		for _, commands := range typed.FindAllStringSubmatch(match[2], -1) {
			c.Fixes = append(c.Fixes, check.Fix{Tool: tool, Commands: strings.Split(commands[1], "\n")})
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the guide has no recipe for %s", tool)
	}
	return found, nil
}
