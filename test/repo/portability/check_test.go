package portability

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/phoenixnap/k8s-cloud-provider-bmc/v2"

// Problem is a package of the project that does not compile, with the first of its errors.
type Problem struct {
	Package string
	Err     error
}

// Check checks the types of all packages of the project, their tests included, as they are on an operating system. It
// takes a fraction of the time of a build: nothing is compiled, and of other modules only declarations are read. It
// returns how many packages of the project there are on that system.
func Check(ctx context.Context, root, system string) (packages int, problems []Problem, err error) {
	listed, err := list(ctx, root, system)
	if err != nil {
		return 0, nil, err
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	sizes := types.SizesFor("gc", "amd64")
	for _, p := range listed {
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		ours := p.Module != nil && p.Module.Path == module
		if ours {
			packages++
		}
		pkg, err := p.check(checked, sizes, ours)
		checked[p.ImportPath] = pkg
		if ours && err != nil {
			problems = append(problems, Problem{p.ImportPath, err})
		}
	}
	return packages, problems, nil
}

// source is a package as `go list -json` prints it.
type source struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Path string }
	DepsErrors      []*struct{ Err string }
}

// list returns the packages of the project with all that they import, each behind what it imports.
func list(ctx context.Context, root, system string) ([]source, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,ImportMap,Module,DepsErrors", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w\n%s", system, err, stderr.String())
	}
	var found []source
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p source
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list prints: %w", err)
		}
		found = append(found, p)
	}
}

// check checks the types of a package; those of other modules without the bodies of functions.
func (p source) check(checked map[string]*types.Package, sizes types.Sizes, ours bool) (*types.Package, error) {
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
		parsed = append(parsed, file)
	}
	var first error
	config := types.Config{
		IgnoreFuncBodies: !ours, FakeImportC: true, Sizes: sizes, Importer: importer{p.ImportMap, checked},
		Error: func(err error) {
			if first == nil {
				first = err
			}
		},
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")     // a package compiled for a test is called "path [test]"
	pkg, _ := config.Check(path, files, parsed, nil) // the error is that which first has
	return pkg, first
}

// importer finds what was checked before.
type importer struct {
	renamed map[string]string
	checked map[string]*types.Package
}

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) {
	if renamed, ok := i.renamed[path]; ok {
		path = renamed
	}
	if pkg := i.checked[path]; pkg != nil && pkg.Complete() {
		return pkg, nil
	}
	return nil, fmt.Errorf("%s is not there on this system", path)
}
