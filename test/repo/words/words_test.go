package words

import (
	"slices"
	"testing"
)

func TestWordsAreFound(t *testing.T) {
	const source = "package p\n\n// P tells nothing.\nconst mend = \"do it\\n\" + `one\nshall`\n\nfunc tellAll() {}\n"
	found := searcher{}.search("p.go", proseOfGo(source))
	want := []Finding{
		{File: "p.go", Line: 3, Word: "tells", Instead: "reports, reported, says"},
		{File: "p.go", Line: 4, Word: "mend", Instead: "fix, repair"},
		{File: "p.go", Line: 5, Word: "shall", Instead: "must, will"},
		{File: "p.go", Line: 7, Word: "tell", Instead: "reports, reported, says"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestExceptionsAreOfALineOrAFile(t *testing.T) {
	for _, test := range []struct {
		file, line string
		want       int
	}{
		{"docs/a.md", "somebody", 1},
		{"docs/a.md", "it runs as the user nobody", 0},
		{"test/repo/words/words.go", "somebody", 0},
		{"docs/a.md", "standalone", 0},
	} {
		if found := (searcher{}).search(test.file, wholeText(test.line)); len(found) != test.want {
			t.Errorf("%s, %q: found %v", test.file, test.line, found)
		}
	}
}

func TestWordsOfSomeFolders(t *testing.T) {
	for file, want := range map[string]int{
		"agent/run.go": 1, "README.md": 1, "controller/main.go": 1, "test/a.go": 0, "agents.md": 0,
	} {
		if found := (searcher{}).search(file, wholeText("it was given back")); len(found) != want {
			t.Errorf("%s: found %v", file, found)
		}
	}
}

func TestEveryExceptionHasAReason(t *testing.T) {
	for _, e := range exceptions {
		if e.why == "" || e.file == "" && e.text == "" {
			t.Errorf("the exception %+v allows everything, or says no reason", e)
		}
	}
}

// TestNoForbiddenWords: comments, strings and pages use the words of the glossary.
func TestNoForbiddenWords(t *testing.T) {
	found, err := Find("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}
