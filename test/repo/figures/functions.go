package figures

import (
	"go/ast"
	"slices"
)

// function is a function with a body, and how many lines it has from its name to its closing brace.
type function struct {
	file, name string
	lines      int
}

// functions returns those of the files, the shortest first.
func functions(files []file) ([]function, error) {
	var found []function
	for _, f := range files {
		parsed, err := parse(f)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			if of, ok := declaration.(*ast.FuncDecl); ok && of.Body != nil {
				found = append(found, function{f.path, of.Name.Name, parsed.line(of.End()) - parsed.line(of.Pos()) + 1})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b function) int { return a.lines - b.lines })
	return found, nil
}

// percentile is the function below which that part of all lies, by the nearest rank.
func percentile(sorted []function, part float64) function {
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
