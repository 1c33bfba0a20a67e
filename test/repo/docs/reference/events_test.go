package reference

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEventsHaveTheirTypes compares the type in the comment of a reason with the calls that send the event.
func TestEventsHaveTheirTypes(t *testing.T) {
	types := map[string]string{}
	constants, err := Constants(root, "agent", "controller", "pkg")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range constants {
		if objectOfEvent(c) == "" {
			continue
		}
		types[c.Package+"."+c.Name] = typeOfEvent(c)
		if typeOfEvent(c) == "" {
			t.Errorf("%s.%s: the comment does not begin with %s (Normal): or %s (Warning):", c.Package, c.Name, c.Name,
				c.Name)
		}
	}
	sent, err := events(root, "agent", "controller")
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, e := range sent {
		reported, known := types[e.Package+"."+e.Reason]
		switch {
		case e.Literal:
			t.Errorf("%s sends an event with the reason %s; declare a constant", e.Package, e.Reason)
		case known && reported != e.Type:
			t.Errorf("%s sends %s as %s, its comment has %s", e.Package, e.Reason, e.Type, reported)
		case known:
			held++
		}
	}
	if held < 20 {
		t.Errorf("only %d events are sent with a reason that is declared; the pattern is out of date", held)
	}
}

func TestEvents(t *testing.T) {
	root := tree(t, map[string]string{"agent/a.go": `package agent
func f() {
	r.Eventf(o, corev1.EventTypeNormal, eventDone, "text")
	record(verdict{corev1.EventTypeWarning, "Literal", "text"})
	r.Event(o, kind, reason, "text")
	r.Event(o, corev1.EventTypeNormal, reasonOf(o), "text")
}
`})
	got, err := events(root, "agent")
	if err != nil {
		t.Fatal(err)
	}
	want := []event{{Package: "agent", Type: "Normal", Reason: "eventDone"},
		{Package: "agent", Type: "Warning", Reason: `"Literal"`, Literal: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// event is a place in the product that passes the type of an event and then its reason, as client-go's recorder does.
type event struct {
	// Package is the directory of the package, relative to the root.
	Package string
	// Type is Normal or Warning.
	Type string
	// Reason is the name of the constant, or the text of a literal.
	Reason string
	// Literal reports that the reason is written out instead of being declared.
	Literal bool
}

// events finds the places below the directories, tests excepted. A reason that is computed is left out.
func events(root string, directories ...string) ([]event, error) {
	var found []event
	err := eachFile(root, directories, func(file *ast.File, pkg string) {
		found = append(found, inFile(file, pkg)...)
	})
	return found, err
}

// inFile reads the arguments of calls and at the elements of literals.
func inFile(file *ast.File, pkg string) []event {
	var events []event
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

func inList(list []ast.Expr, pkg string) []event {
	var events []event
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
			events = append(events, event{Package: pkg, Type: kind, Reason: reason.Name})
		case *ast.BasicLit:
			events = append(events, event{Package: pkg, Type: kind, Reason: reason.Value, Literal: true})
		}
	}
	return events
}
