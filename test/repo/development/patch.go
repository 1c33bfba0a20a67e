package development

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ellipsis at the end of a line of context stands for the rest of the line.
const ellipsis = "…"

// apply makes the change below root. Go files are formatted afterwards, so a patch need not align columns.
func (c *change) apply(root string) error {
	path := filepath.Join(root, filepath.FromSlash(c.file))
	var lines []string
	if !c.created {
		raw, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("the page names a file: %w", err)
		}
		lines = strings.Split(string(raw), "\n")
	}
	for _, hunk := range c.hunks {
		changed, err := applyHunk(lines, hunk)
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		lines = changed
	}
	content := []byte(strings.TrimSuffix(strings.Join(lines, "\n"), "\n") + "\n")
	if strings.HasSuffix(c.file, ".go") {
		formatted, err := format.Source(content)
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		content = formatted
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, bytes.TrimLeft(content, "\n"), 0o644)
}

// applyHunk replaces the one place of lines that the hunk's context and removed lines describe.
func applyHunk(lines, hunk []string) ([]string, error) {
	old := slices.DeleteFunc(slices.Clone(hunk), func(line string) bool { return strings.HasPrefix(line, "+") })
	at := -1
	for i := range len(lines) - len(old) + 1 {
		if !matches(lines[i:], old) {
			continue
		}
		if at >= 0 {
			return nil, fmt.Errorf("the lines %q occur more than once", old)
		}
		at = i
	}
	if at < 0 {
		return nil, fmt.Errorf("the lines %q are not there", old)
	}
	var fresh []string
	from := at
	for _, line := range hunk {
		switch {
		case strings.HasPrefix(line, "+"):
			fresh = append(fresh, line[1:])
		case strings.HasPrefix(line, "-"):
			from++
		default:
			fresh = append(fresh, lines[from])
			from++
		}
	}
	return slices.Concat(lines[:at], fresh, lines[from:]), nil
}

// matches compares the words of lines: indentation and alignment do not count.
func matches(lines, old []string) bool {
	for i, wanted := range old {
		have := spaced(lines[i])
		want := spaced(strings.TrimPrefix(wanted, "-"))
		begin, open := strings.CutSuffix(want, ellipsis)
		same := have == want || open && strings.HasPrefix(have, strings.TrimSpace(begin))
		if !same {
			return false
		}
	}
	return true
}

// spaced is a line with one space between its words.
func spaced(line string) string { return strings.Join(strings.Fields(line), " ") }
