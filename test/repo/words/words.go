// Package words finds words in comments, strings and pages that this project does not use: a reader should meet the
// words of the Kubernetes documentation and of the field, not private ones.
package words

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// exception is a place where a forbidden word has to stay.
type exception struct {
	// file is a path below the root of the repository; a folder when it ends with a slash.
	file string
	// text is in the line that is allowed; empty allows every line of the file.
	text string
	why  string
}

var exceptions = []exception{
	{"test/repo/words/", "", "it is the list"},
	{"LICENSE", "", "it is not ours"},
	{"", "user nobody", "an account of Linux"},
	{"", "nogroup", "an account of Linux"},
}

// word is a pattern of what is not written, and what is written instead.
type word struct {
	Pattern, Instead string
	// In are the files and folders, below the root of the repository, where it is not written; empty for all.
	In []string

	find *regexp.Regexp
}

// isForbiddenIn reports whether the word is not written in a file.
func (w word) isForbiddenIn(file string) bool {
	return len(w.In) == 0 || slices.ContainsFunc(w.In, func(path string) bool {
		return file == path || strings.HasPrefix(file, path+"/")
	})
}

//go:embed words.yaml
var forbidden []byte

var patterns = compile()

func compile() []word {
	var words []word
	if err := yaml.UnmarshalStrict(forbidden, &words); err != nil {
		panic(err) // it is part of the program
	}
	for i, w := range words {
		words[i].find = regexp.MustCompile(`(?i)\b(?:` + w.Pattern + `)\b`)
	}
	return words
}
