package figures

import (
	"bytes"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// seamFigures measure what another kind of announcer or a second network would have to change.
func seamFigures(root string) ([]string, error) {
	shipped, err := productFiles(root)
	if err != nil {
		return nil, err
	}
	comparisons, err := announcerComparisons(shipped)
	return []string{
		Count("announcer_kind_comparisons", comparisons, "comparisons"),
		Count("network_id_lines", networkIDLines(shipped), "lines"),
	}, err
}

// announcerKinds are the constants of package contract for the kinds of announcers.
var announcerKinds = []string{"AnnouncerKubeVIP", "AnnouncerAgent", "AnnouncerNone"}

// announcerComparisons counts the expressions that compare with a kind of announcer, without those in packages of
// announcers.
func announcerComparisons(files []file) (int, error) {
	count := 0
	for _, f := range files {
		if ofAnnouncer(f.path) {
			continue
		}
		parsed, err := parse(f)
		if err != nil {
			return 0, err
		}
		ast.Inspect(parsed.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				compares := n.Op == token.EQL || n.Op == token.NEQ
				if compares && (isAnnouncerKind(n.X) || isAnnouncerKind(n.Y)) {
					count++
				}
			case *ast.CaseClause:
				if slices.ContainsFunc(n.List, isAnnouncerKind) {
					count++
				}
			}
			return true
		})
	}
	return count, nil
}

// ofAnnouncer reports whether a file belongs to a package of an announcer.
func ofAnnouncer(path string) bool {
	return strings.HasPrefix(path, "agent/announce/") || strings.Contains(path, "/announcer/")
}

func isAnnouncerKind(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || !slices.Contains(announcerKinds, selector.Sel.Name) {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == "contract"
}

var networkID = regexp.MustCompile(`\bNetworkID\b`)

// networkIDLines counts the lines that name the ID of a network.
func networkIDLines(files []file) int {
	count := 0
	for _, f := range files {
		for line := range bytes.Lines(f.source) {
			if networkID.Match(line) {
				count++
			}
		}
	}
	return count
}
