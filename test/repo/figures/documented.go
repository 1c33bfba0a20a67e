package figures

import (
	"go/ast"
	"go/token"
	"slices"
)

// documentation counts exported names, and lists those without a comment.
type documentation struct {
	exported     int
	undocumented []string
}

// selfEvident are methods of interfaces of the standard library, which say what they do by their name.
var selfEvident = []string{"Error", "String", "Unwrap"}

func (d *documentation) add(path string, name *ast.Ident, comments ...*ast.CommentGroup) {
	if !name.IsExported() || slices.Contains(selfEvident, name.Name) {
		return
	}
	d.exported++
	for _, c := range comments {
		if c != nil {
			return
		}
	}
	d.undocumented = append(d.undocumented, path+": "+name.Name)
}

func (d *documentation) percent() float64 {
	return 100 * float64(d.exported-len(d.undocumented)) / float64(max(d.exported, 1))
}

func documented(files []file) (documentation, error) {
	var d documentation
	for _, f := range files {
		parsed, err := parse(f)
		if err != nil {
			return d, err
		}
		for _, declaration := range parsed.Decls {
			switch of := declaration.(type) {
			case *ast.FuncDecl:
				if ofExportedType(of) {
					d.add(f.path, of.Name, of.Doc)
				}
			case *ast.GenDecl:
				d.addGroup(f.path, of)
			}
		}
	}
	return d, nil
}

// addGroup adds a declaration. The comment of a group of constants or variables is for all of them.
func (d *documentation) addGroup(path string, group *ast.GenDecl) {
	for _, spec := range group.Specs {
		switch of := spec.(type) {
		case *ast.TypeSpec:
			comments := []*ast.CommentGroup{of.Doc}
			if group.Lparen == token.NoPos {
				comments = append(comments, group.Doc)
			}
			d.add(path, of.Name, comments...)
		case *ast.ValueSpec:
			for _, name := range of.Names {
				d.add(path, name, of.Doc, of.Comment, group.Doc)
			}
		}
	}
}

// ofExportedType reports whether others can call the function: it has no receiver, or one of an exported type.
func ofExportedType(of *ast.FuncDecl) bool {
	if of.Recv == nil {
		return true
	}
	receiver := of.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}
