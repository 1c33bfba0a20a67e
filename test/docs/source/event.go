package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// Event is a place in the product that tells the type of an event and then its reason, as client-go's recorder wants them.
type Event struct {
	// Package is the directory of the package, relative to the root.
	Package string
	// Type is Normal or Warning.
	Type string
	// Reason is the name of the constant, or the text of a literal.
	Reason string
	// Literal tells that the reason is written out instead of being declared.
	Literal bool
}

// Events finds the places below the directories, tests excepted. A reason that is computed is left out.
func Events(root string, directories ...string) ([]Event, error) {
	var events []Event
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			events = append(events, inFile(file, filepath.ToSlash(pkg))...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for events below %s: %w", directory, err)
		}
	}
	return events, nil
}

// inFile looks at the arguments of calls and at the elements of literals.
func inFile(file *ast.File, pkg string) []Event {
	var events []Event
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			events = append(events, inList(n.Args, pkg)...)
		case *ast.CompositeLit:
			events = append(events, inList(n.Elts, pkg)...)
		}
		return true
	})
	return events
}

func inList(list []ast.Expr, pkg string) []Event {
	var events []Event
	for i, e := range list {
		selector, ok := e.(*ast.SelectorExpr)
		if !ok || i+1 == len(list) {
			continue
		}
		kind, ok := strings.CutPrefix(selector.Sel.Name, "EventType")
		if !ok {
			continue
		}
		switch reason := list[i+1].(type) {
		case *ast.Ident:
			events = append(events, Event{Package: pkg, Type: kind, Reason: reason.Name})
		case *ast.BasicLit:
			events = append(events, Event{Package: pkg, Type: kind, Reason: reason.Value, Literal: true})
		}
	}
	return events
}
