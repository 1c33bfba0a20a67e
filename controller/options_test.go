package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"testing"
)

// TestEveryOptionHasAnEffect: an option that is read, checked and logged, and then never handed to what it is
// to control, has no effect and reports nothing. Whatever stands in config.Config is used by main or the controllers.
//
//proves:known-bugs/unused-options
func TestEveryOptionHasAnEffect(t *testing.T) {
	used := map[string]bool{}
	notTests := func(file fs.FileInfo) bool { return !strings.HasSuffix(file.Name(), "_test.go") }
	for dir, name := range map[string]string{".": "main", "controllers": "controllers"} {
		//nolint:staticcheck // build tags do not matter here
		packages, err := parser.ParseDir(token.NewFileSet(), dir, notTests, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(packages[name], func(node ast.Node) bool {
			if field, ok := node.(*ast.SelectorExpr); ok && isLoadedConfig(field.X) {
				used[field.Sel.Name] = true
			}
			return true
		})
	}
	for _, name := range optionFields(t) {
		if !used[name] {
			t.Errorf("config.Config.%s is used by nothing in main and controllers: the option has no effect", name)
		}
	}
}

// isLoadedConfig recognises the names under which main and the controllers hold the configuration.
func isLoadedConfig(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "loaded"
	case *ast.SelectorExpr:
		holder, ok := x.X.(*ast.Ident)
		return ok && holder.Name == "c" && (x.Sel.Name == "options" || x.Sel.Name == "Options")
	default:
		return false
	}
}

func optionFields(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config/config.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(node ast.Node) bool {
		declared, ok := node.(*ast.TypeSpec)
		if !ok || declared.Name.Name != "Config" {
			return true
		}
		fields, ok := declared.Type.(*ast.StructType)
		if !ok {
			t.Fatalf("config.Config is %T", declared.Type)
		}
		for _, field := range fields.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
		return false
	})
	if len(names) < 15 {
		t.Fatalf("only %d options found: %v", len(names), names)
	}
	return names
}
