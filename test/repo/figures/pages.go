package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// pages are folders of the documentation that readers read as a whole, so that their length counts. What is only looked
// up, as the reference, may grow.
var pages = []struct {
	folder, figure string
	// max is how many words all pages of the folder may have together.
	max int
}{
	{"docs/guides", "docs_guides_words", 12000},
	{"docs/explanation", "docs_explanation_words", 8000},
}

func pageFigures(root string) ([]string, error) {
	var figures []string
	for _, p := range pages {
		words, err := wordsIn(root, p.folder)
		if err != nil {
			return nil, err
		}
		figures = append(figures, Count(p.figure, words, "words"))
	}
	return figures, nil
}

// wordsIn counts the words of all pages of a folder.
func wordsIn(root, folder string) (int, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.md"))
	words := 0
	for _, path := range files {
		page, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("count the words of %s: %w", folder, err)
		}
		words += pageWords(string(page))
	}
	return words, err
}

var (
	fence  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	target = regexp.MustCompile(`\]\([^)]*\)`)
)

// pageWords counts what a person reads of a page: no blocks of code, no targets of links, no signs without letters or
// digits.
func pageWords(page string) int {
	words := 0
	for _, word := range strings.Fields(target.ReplaceAllString(fence.ReplaceAllString(page, ""), "]")) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			words++
		}
	}
	return words
}
