package words

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Finding is one use of a forbidden word.
type Finding struct {
	File, Word, Instead string
	Line                int
}

// String writes a finding so that editors can jump to it.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q, write %s", f.File, f.Line, f.Word, f.Instead)
}

// code and pages are where the words are looked for: comments, strings and names of Go, and the whole text of pages.
var (
	code  = []string{"agent", "controller", "pkg", "test"}
	pages = []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", ".github", "Makefile", "docs",
		"deploy", "test"}
)

// Find reads the repository at root.
func Find(root string) ([]Finding, error) {
	var findings []Finding
	s := searcher{}
	read := func(suffixes []string, texts func(string) []text) func(string) error {
		return func(path string) error {
			if !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
				return nil
			}
			raw, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return fmt.Errorf("look for words: %w", err)
			}
			findings = append(findings, s.search(filepath.ToSlash(path), texts(string(raw)))...)
			return nil
		}
	}
	if err := walk(root, code, read([]string{".go"}, proseOfGo)); err != nil {
		return nil, err
	}
	err := walk(root, pages, read([]string{".md", ".yaml", ".yml", ".tpl", ".txt", ".json", "Makefile"},
		wholeText))
	return findings, err
}

// walk visits the files below the paths.
func walk(root string, paths []string, visit func(string) error) error {
	for _, top := range paths {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return visit(relative)
		})
		if err != nil {
			return fmt.Errorf("look for words below %s: %w", top, err)
		}
	}
	return nil
}

// text is a piece of a file that people read, and the line that it begins at.
type text struct {
	content string
	line    int
}

func wholeText(content string) []text { return []text{{content, 1}} }

// parts separates the words of a name.
var parts = regexp.MustCompile(`[A-Z]?[a-z0-9]+`)

// proseOfGo are the comments, the strings and the words of the names of a Go file.
func proseOfGo(source string) []text {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), nil, scanner.ScanComments)
	var found []text
	for {
		position, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return found
		case token.COMMENT, token.STRING:
			found = append(found, text{literal, file.Line(position)})
		case token.IDENT:
			found = append(found, text{strings.Join(parts.FindAllString(literal, -1), " "), file.Line(position)})
		default:
		}
	}
}

// match is a text that a forbidden word matches.
type match struct {
	text string
	word word
}

// searcher remembers the forbidden words of each line: most names and many lines occur again and again.
type searcher map[string][]match

func (s searcher) search(file string, texts []text) []Finding {
	var findings []Finding
	for _, t := range texts {
		for i, line := range strings.Split(t.content, "\n") {
			found := s.in(line)
			if len(found) == 0 || allowed(file, line) {
				continue
			}
			for _, m := range found {
				if m.word.isForbiddenIn(file) {
					findings = append(findings, Finding{File: file, Line: t.line + i, Word: m.text,
						Instead: m.word.Instead})
				}
			}
		}
	}
	return findings
}

// in returns the forbidden words of a line.
func (s searcher) in(line string) []match {
	found, known := s[line]
	if !known {
		for _, p := range patterns {
			for _, text := range p.find.FindAllString(line, -1) {
				found = append(found, match{text, p})
			}
		}
		s[line] = found
	}
	return found
}

func allowed(file, line string) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool {
		folder := strings.HasSuffix(e.file, "/") && strings.HasPrefix(file, e.file)
		return (e.file == "" || e.file == file || folder) && strings.Contains(line, e.text)
	})
}
