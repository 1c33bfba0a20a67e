package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Constant is one string constant of the product.
type Constant struct {
	// Package is the directory of the package, relative to the root, with slashes.
	Package string
	// Name of the constant, and its value.
	Name, Value string
	// Type as it is written; empty for an untyped constant.
	Type string
	// Comment of the constant, in one line, without its name.
	Comment string
	// Block is the comment of the declaration that it stands in, in one line.
	Block string
	// Single reports that the declaration holds only this constant, so that both comments are one.
	Single bool
}

// Constants returns the string constants of all packages below the directories, tests excepted, in the order of the
// files' names and of the declarations. A constant whose value cannot be computed from constants of the product is left
// out.
func Constants(root string, directories ...string) ([]Constant, error) {
	var found []declared
	err := eachFile(root, directories, func(file *ast.File, pkg string) {
		found = append(found, fileConstants(file, pkg)...)
	})
	if err != nil {
		return nil, err
	}
	return resolve(found), nil
}

// declared is a constant whose value is still an expression.
type declared struct {
	Constant
	value ast.Expr
}

// eachFile parses the files below the directories, tests excepted, in the order of their names; the package is the
// directory relative to the root, with slashes.
func eachFile(root string, directories []string, look func(file *ast.File, pkg string)) error {
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil,
				parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			if err == nil {
				look(file, filepath.ToSlash(pkg))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("read the source below %s: %w", directory, err)
		}
	}
	return nil
}

func fileConstants(file *ast.File, pkg string) []declared {
	var constants []declared
	for _, decl := range file.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, spec := range block.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				constants = append(constants, ofSpec(pkg, block, values)...)
			}
		}
	}
	return constants
}

func ofSpec(directory string, block *ast.GenDecl, spec *ast.ValueSpec) []declared {
	var constants []declared
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			break
		}
		c := Constant{Package: directory, Name: name.Name, Block: line(block.Doc), Single: !block.Lparen.IsValid()}
		c.Comment = line(spec.Doc)
		if c.Single {
			c.Comment = c.Block
		}
		c.Comment = strings.TrimPrefix(strings.TrimPrefix(c.Comment, name.Name), ":")
		if t, ok := spec.Type.(*ast.Ident); ok {
			c.Type = t.Name
		}
		constants = append(constants, declared{Constant: c, value: spec.Values[i]})
	}
	return constants
}

func line(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

// resolve evaluates the expressions. A constant may use one of a package that is read later, so this goes on until a
// pass finds nothing new.
func resolve(all []declared) []Constant {
	values := map[string]string{}
	for before := -1; before != len(values); {
		before = len(values)
		for _, d := range all {
			if value, ok := evaluate(d.value, d.Package, values); ok {
				values[d.Package+"."+d.Name] = value
			}
		}
	}
	var constants []Constant
	for _, d := range all {
		if value, ok := values[d.Package+"."+d.Name]; ok {
			d.Value = value
			d.Comment = strings.TrimSpace(d.Comment)
			constants = append(constants, d.Constant)
		}
	}
	return constants
}

// evaluate returns the value of a literal, a sum, a constant of the same package or one of another package of the
// product, which is found by the last element of its path.
func evaluate(e ast.Expr, directory string, values map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		value, ok := values[directory+"."+e.Name]
		return value, ok
	case *ast.SelectorExpr:
		of, ok := e.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		for name, value := range values {
			if strings.HasSuffix(name, "/"+of.Name+"."+e.Sel.Name) {
				return value, true
			}
		}
		return "", false
	case *ast.BinaryExpr:
		left, ok := evaluate(e.X, directory, values)
		right, also := evaluate(e.Y, directory, values)
		return left + right, ok && also && e.Op == token.ADD
	default:
		return "", false
	}
}
