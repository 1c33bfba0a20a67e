package source

import (
	"go/ast"
	"strings"
)

// Event is a place in the product that passes the type of an event and then its reason, as client-go's recorder does.
type Event struct {
	// Package is the directory of the package, relative to the root.
	Package string
	// Type is Normal or Warning.
	Type string
	// Reason is the name of the constant, or the text of a literal.
	Reason string
	// Literal reports that the reason is written out instead of being declared.
	Literal bool
}

// Events finds the places below the directories, tests excepted. A reason that is computed is left out.
func Events(root string, directories ...string) ([]Event, error) {
	var events []Event
	err := eachFile(root, directories, func(file *ast.File, pkg string) {
		events = append(events, inFile(file, pkg)...)
	})
	return events, err
}

// inFile reads the arguments of calls and at the elements of literals.
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
