package figures

import "testing"

const root = "../../.."

// TestFunctionsStayShort keeps what makes the code easy to read. A function that grows must be divided.
func TestFunctionsStayShort(t *testing.T) {
	shipped, err := productFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	sorted, err := functions(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if len(sorted) < 1000 {
		t.Fatalf("only %d functions found", len(sorted))
	}
	for _, limit := range []struct {
		name string
		part float64
		max  int
	}{{"median", 0.5, 10}, {"95th percentile", 0.95, 30}, {"maximum", 1, 70}} {
		if got := percentile(sorted, limit.part); got.lines > limit.max {
			t.Errorf("the %s is %d lines, want at most %d: %s in %s", limit.name, got.lines, limit.max, got.name,
				got.file)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	shipped, err := productFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := documented(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if docs.exported < 500 {
		t.Fatalf("only %d exported names found", docs.exported)
	}
	for _, name := range docs.undocumented {
		t.Errorf("%s has no comment", name)
	}
}

func TestDocumented(t *testing.T) {
	docs, err := documented([]file{{"p.go", []byte(`package p

// A is one.
type A struct{}

func (A) B() {}

func (c) C() {}

// All of them.
const (
	D = 1
	e = 2
)

var F int
`)}})
	if err != nil {
		t.Fatal(err)
	}
	if docs.exported != 4 || len(docs.undocumented) != 2 {
		t.Errorf("%d exported, without a comment %q", docs.exported, docs.undocumented)
	}
}

// TestPagesStayShort: who looks for an answer does not read a book. A page that needs more room takes it from a
// sentence that says again what it, or a page that it links to, says already; tables of details belong into
// docs/reference.
func TestPagesStayShort(t *testing.T) {
	for _, p := range pages {
		words, err := wordsIn(root, p.folder)
		if err != nil {
			t.Fatal(err)
		}
		if words == 0 || words > p.max {
			t.Errorf("%s has %d words, want at most %d", p.folder, words, p.max)
		}
	}
}

func TestPageWords(t *testing.T) {
	const page = "# Two words\n\n| a | [b c](x.md#no-words-here) |\n|---|---|\n\n1. then\n\n   ```sh\n   no words\n   ```\n" +
		"\n```\nnone\n```\n— `x`\n"
	if got, want := pageWords(page), 8; got != want { // Two words a b c 1. then x
		t.Errorf("%d words, want %d", got, want)
	}
}

func TestColumns(t *testing.T) {
	for line, want := range map[string]int{"": 0, "\tx": 5, "→": 1} {
		if got := columns(line); got != want {
			t.Errorf("%q has %d columns, want %d", line, got, want)
		}
	}
}

func TestFigureIsALine(t *testing.T) {
	if got := percent("long_lines_percent", 1.234); got != "figure long_lines_percent 1.23 %" {
		t.Errorf("got %q", got)
	}
}
