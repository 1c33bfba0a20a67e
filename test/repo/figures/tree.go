// Package figures measures the repository itself: how large it is, how long its functions are, what is documented.
package figures

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// product and everything are the folders that hold Go code.
var (
	product    = []string{"agent", "controller", "pkg"}
	everything = []string{"agent", "controller", "pkg", "test"}
)

// file is a Go file of the repository.
type file struct {
	// path is below the root, with slashes.
	path   string
	source []byte
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// isGenerated reports whether a program wrote the file (https://go.dev/s/generatedcode).
func (f file) isGenerated() bool {
	return bytes.Contains(f.source, []byte("\n// Code generated "))
}

func (f file) lines() int { return bytes.Count(f.source, []byte("\n")) }

// goFiles reads the Go files below the folders, tests included.
func goFiles(root string, folders ...string) ([]file, error) {
	var files []file
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			files = append(files, file{filepath.ToSlash(relative), source})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the Go files of %s: %w", folder, err)
		}
	}
	return files, nil
}

// rooms counts the folders of a folder.
func rooms(root, folder string) (int, error) {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		return 0, fmt.Errorf("count the rooms of %s: %w", folder, err)
	}
	count := 0
	for _, e := range entries {
		if e.IsDir() {
			count++
		}
	}
	return count, nil
}

// syntax is a parsed file with what is needed to find lines.
type syntax struct {
	*ast.File
	positions *token.FileSet
}

func parse(f file) (syntax, error) {
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, f.path, f.source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return syntax{}, fmt.Errorf("parse %s: %w", f.path, err)
	}
	return syntax{parsed, positions}, nil
}

func (s syntax) line(p token.Pos) int { return s.positions.Position(p).Line }

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

const (
	maxColumns = 120
	tabColumns = 4
)

// longLines counts the lines of the files, and those that are too long.
func longLines(files []file) (long, all int) {
	for _, f := range files {
		for line := range strings.Lines(string(f.source)) {
			all++
			if columns(strings.TrimSuffix(line, "\n")) > maxColumns {
				long++
			}
		}
	}
	return long, all
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}
