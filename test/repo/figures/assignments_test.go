package figures

import (
	"go/ast"
	"slices"
	"testing"
)

// TestOneAssignmentPerLine keeps statements such as a, b = x, y out, which hide what gets which value.
func TestOneAssignmentPerLine(t *testing.T) {
	files, err := goFiles(root, everything...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		parsed, err := parse(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range joined(parsed) {
			t.Errorf("%s:%d: one assignment per line", f.path, parsed.line(found.Pos()))
		}
	}
}

func TestJoinedAssignments(t *testing.T) {
	parsed, err := parse(file{"p.go", []byte(`package p

func f() {
	a, b := 1, 2
	a, b = b, a
	c, ok := m[a]
	if x, y := g(), 3; x > y {
	}
	for i, j := 0, 1; i < j; i, j = i+1, j {
	}
	s.a, s.b = s.b, 1
	a, b = h(), 3
}
`)})
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, found := range joined(parsed) {
		lines = append(lines, parsed.line(found.Pos()))
	}
	if want := []int{4, 12}; !slices.Equal(lines, want) {
		t.Errorf("found in lines %v, want %v", lines, want)
	}
}

// joined finds statements that give several variables a value of their own each. Allowed are those in the heads of if,
// for and switch, and swaps: what stands left is used right.
func joined(parsed syntax) []*ast.AssignStmt {
	heads := map[ast.Stmt]bool{}
	var found []*ast.AssignStmt
	ast.Inspect(parsed.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			heads[n.Init] = true
		case *ast.SwitchStmt:
			heads[n.Init] = true
		case *ast.TypeSwitchStmt:
			heads[n.Init] = true
		case *ast.ForStmt:
			heads[n.Init] = true
			heads[n.Post] = true
		case *ast.AssignStmt:
			if len(n.Rhs) > 1 && !heads[n] && !isSwap(n) {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

// isSwap reports whether a variable from the left, or the one that a field belongs to, is used on the right.
func isSwap(of *ast.AssignStmt) bool {
	names := map[string]bool{}
	for _, left := range of.Lhs {
		for name := range identifiers(left) {
			names[name] = true
		}
	}
	for _, right := range of.Rhs {
		for name := range identifiers(right) {
			if names[name] && name != "_" {
				return true
			}
		}
	}
	return false
}

func identifiers(e ast.Expr) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(e, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			names[name.Name] = true
		}
		return true
	})
	return names
}
