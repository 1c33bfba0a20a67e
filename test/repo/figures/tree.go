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
	"strings"
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
