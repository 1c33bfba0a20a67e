package check

import (
	"slices"
	"strings"
)

// maxNames keeps evidence readable on a node with hundreds of pod interfaces.
const maxNames = 8

// sortedNames writes the texts of the links that have one, sorted, or "none".
func sortedNames(links []Link, text func(Link) (string, bool)) string {
	var names []string
	for _, l := range links {
		if name, has := text(l); has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxNames:
		return strings.Join(names[:maxNames], ", ") + ", …"
	default:
		return strings.Join(names, ", ")
	}
}

// sorted sorts texts and drops those that are there twice.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
