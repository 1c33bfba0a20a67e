// Package reference writes the tables of the reference from what the code declares.
package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// region is what a page leaves to this package: the lines between two comments.
var region = regexp.MustCompile(
	`(?s)(<!-- begin ([a-z0-9-]+): written by make docs -->\n).*?(<!-- end ([a-z0-9-]+) -->\n)`)

// Regions names the regions of a page.
func Regions(page string) []string {
	var names []string
	for _, match := range region.FindAllStringSubmatch(page, -1) {
		names = append(names, match[2])
	}
	return names
}

// Fill returns the page with a table in each of its regions.
func Fill(page string, tables map[string]string) (string, error) {
	var unknown []string
	filled := region.ReplaceAllStringFunc(page, func(whole string) string {
		match := region.FindStringSubmatch(whole)
		table, ok := tables[match[2]]
		if !ok || match[2] != match[4] {
			unknown = append(unknown, match[2])
			return whole
		}
		return match[1] + table + match[3]
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("there are no tables called %s, or their regions do not end with the same name",
			strings.Join(unknown, ", "))
	}
	if strings.Count(page, "<!-- begin ") != len(Regions(page)) {
		return "", fmt.Errorf("a region does not end; those that do: %s", strings.Join(Regions(page), ", "))
	}
	return filled, nil
}

// table writes a table. Empty cells stay empty.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("|")
			if cell != "" {
				b.WriteString(" " + strings.ReplaceAll(cell, "|", "\\|"))
			}
			b.WriteString(" ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// code marks text as code; nothing stays nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// codes marks each text that is not empty.
func codes(texts ...string) string {
	var marked []string
	for _, text := range slices.Compact(texts) {
		if text != "" {
			marked = append(marked, code(text))
		}
	}
	return strings.Join(marked, ", ")
}
