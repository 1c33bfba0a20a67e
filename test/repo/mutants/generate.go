package mutants

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Generate returns at most count mutations of each target below root, times its share, the same ones as long as their
// lines do not change.
func Generate(root string, count int) ([]Mutation, error) {
	var chosen []Mutation
	for _, t := range targets {
		all, err := generateAll(root, t.pkg)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, all[:min(count*max(t.share, 1), len(all))]...)
	}
	return chosen, nil
}

// generateAll returns all mutations of a package in an order that depends only on their texts.
func generateAll(root, pkg string) ([]Mutation, error) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("generate mutations: %w", err)
	}
	var all []Mutation
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("generate mutations: %w", err)
		}
		found, err := mutationsOf(pkg+"/"+filepath.Base(file), raw)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	hash := func(m Mutation) []byte { sum := sha256.Sum256([]byte(m.key())); return sum[:] }
	slices.SortStableFunc(all, func(a, b Mutation) int {
		return cmp.Or(bytes.Compare(hash(a), hash(b)), cmp.Compare(a.at, b.at))
	})
	return slices.CompactFunc(all, func(a, b Mutation) bool { return a.key() == b.key() }), nil
}

// unseen are calls without an effect that a functional test sees: logs, metrics, locks, and what closes.
var unseen = regexp.MustCompile(`klog\.|[lL]og|\.(Info|Error|Inc|Lock|Unlock|RLock|RUnlock|Close)\(|Metrics\.`)

// generator collects the mutations of one file.
type generator struct {
	file  string
	text  string
	pos   func(token.Pos) int
	found []Mutation
}

func mutationsOf(file string, raw []byte) ([]Mutation, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, raw, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("generate mutations: %w", err)
	}
	g := &generator{file: file, text: string(raw), pos: func(p token.Pos) int { return set.Position(p).Offset }}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			g.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				g.replace(n.Pos(), n.X.Pos(), "")
			}
		case *ast.IfStmt:
			g.replace(n.Cond.Pos(), n.Cond.End(), "!("+g.between(n.Cond)+")")
		case *ast.ReturnStmt:
			g.result(n)
		case *ast.ExprStmt:
			if !unseen.MatchString(g.between(n)) {
				g.replace(n.Pos(), n.End(), "")
			}
		}
		return true
	})
	return g.found, nil
}

func (g *generator) between(n ast.Node) string { return g.text[g.pos(n.Pos()):g.pos(n.End())] }

// replace adds a mutation of the lines that contain the range.
func (g *generator) replace(from, to token.Pos, with string) {
	first := strings.LastIndexByte(g.text[:g.pos(from)], '\n') + 1
	last := len(g.text)
	if i := strings.IndexByte(g.text[g.pos(to):], '\n'); i >= 0 {
		last = g.pos(to) + i
	}
	g.found = append(g.found, Mutation{File: g.file, Old: g.text[first:last],
		New: g.text[first:g.pos(from)] + with + g.text[g.pos(to):last], at: first})
}

// comparisons are what replaces an operator: the boundary moves, or the result is the opposite.
var comparisons = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

// binary replaces a comparison, and leaves out each operand of a conjunction.
func (g *generator) binary(n *ast.BinaryExpr) {
	if n.Op == token.LAND || n.Op == token.LOR {
		g.replace(n.Pos(), n.End(), g.between(n.X))
		g.replace(n.Pos(), n.End(), g.between(n.Y))
		return
	}
	if with, ok := comparisons[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
		g.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), with.String())
	}
}

// isText reports whether an operand of + is a string, as far as the syntax shows.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(e.X) || isText(e.Y)
	}
	return false
}

// result inverts constant results, and drops an error.
func (g *generator) result(n *ast.ReturnStmt) {
	opposite := map[string]string{"true": "false", "false": "true"}
	for _, each := range n.Results {
		name, ok := each.(*ast.Ident)
		switch {
		case !ok:
		case opposite[name.Name] != "":
			g.replace(name.Pos(), name.End(), opposite[name.Name])
		case name.Name == "err":
			g.replace(name.Pos(), name.End(), "nil")
		}
	}
}
