// Package development follows the page that explains how to make a typical change: it makes the change in a copy of the
// repository, as the page shows it, and runs the commands of the page there. So the page stays true, and the number of
// files that a typical change touches is known.
package development

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Page is the page, below the root of the repository.
const Page = "docs/development/walkthroughs.md"

// AddACheck is the title of the walk-through that adds a check to the agent.
const AddACheck = "Add a check"

// Walkthrough is a section of the page.
type Walkthrough struct {
	Title string
	steps []step
}

// step is either a change of one file or commands.
type step struct {
	change   *change
	commands []string
}

// change is a patch of one file. Its hunks are found by their context, not by line numbers.
type change struct {
	file    string
	created bool
	hunks   [][]string
}

var (
	section = regexp.MustCompile(`(?m)^## (.+)$`)
	block   = regexp.MustCompile("(?ms)^```(diff|sh)\n(.*?)^```$")
)

// Walkthroughs reads the page: each section that holds a patch, in order.
func Walkthroughs(root string) ([]Walkthrough, error) {
	raw, err := os.ReadFile(filepath.Join(root, Page))
	if err != nil {
		return nil, fmt.Errorf("read the walk-throughs: %w", err)
	}
	var found []Walkthrough
	text := string(raw)
	heads := section.FindAllStringSubmatchIndex(text, -1)
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		steps, err := stepsOf(text[head[1]:end])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Page, err)
		}
		if len(steps) > 0 {
			found = append(found, Walkthrough{Title: text[head[2]:head[3]], steps: steps})
		}
	}
	return found, nil
}

func stepsOf(text string) ([]step, error) {
	var steps []step
	for _, match := range block.FindAllStringSubmatch(text, -1) {
		lines := strings.Split(strings.TrimSuffix(match[2], "\n"), "\n")
		if match[1] == "sh" {
			steps = append(steps, step{commands: lines})
			continue
		}
		parsed, err := parseChange(lines)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{change: parsed})
	}
	return steps, nil
}

// parseChange reads a patch: "--- a/file" or "--- /dev/null", "+++ b/file", and hunks that begin with "@@".
func parseChange(lines []string) (*change, error) {
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "--- ") || !strings.HasPrefix(lines[1], "+++ b/") {
		return nil, fmt.Errorf("a patch begins with the lines --- and +++, not with %q", lines[0])
	}
	c := &change{file: strings.TrimPrefix(lines[1], "+++ b/"), created: lines[0] == "--- /dev/null"}
	for _, line := range lines[2:] {
		switch {
		case strings.HasPrefix(line, "@@"):
			c.hunks = append(c.hunks, nil)
		case len(c.hunks) == 0 || line != "" && !slices.Contains([]byte(" +-"), line[0]):
			return nil, fmt.Errorf("%s: the line %q is in no hunk", c.file, line)
		default:
			c.hunks[len(c.hunks)-1] = append(c.hunks[len(c.hunks)-1], line)
		}
	}
	return c, nil
}
