package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const firstPage = "README.md"

// TestFirstScreen: a visitor reads little. What the project is stands first, in two sentences, and the rest in the
// order in which questions come up.
func TestFirstScreen(t *testing.T) {
	page := read(t, firstPage)
	if lines := strings.Count(page, "\n"); lines > 120 {
		t.Errorf("%s has %d lines, want at most 120", firstPage, lines)
	}
	var headings []string
	for _, match := range heading.FindAllStringSubmatch(prose(page), -1) {
		headings = append(headings, match[1])
	}
	want := []string{"phoenixNAP cloud provider for Kubernetes", "Three figures", "What it looks like", "Status",
		"What it costs", "Versions", "Install", "Try it without an account", "Documentation"}
	if diff := cmp.Diff(want, headings); diff != "" {
		t.Errorf("headings of %s (-want +page):\n%s", firstPage, diff)
	}
	parts := strings.Split(page, "\n\n")
	sentences := regexp.MustCompile(`\.(\s|$)`)
	if got := len(sentences.FindAllString(parts[1], -1)); got != 2 {
		t.Errorf("%s says in %d sentences what the project is, want 2:\n%s", firstPage, got, parts[1])
	}
	if !strings.HasPrefix(parts[2], "![") {
		t.Errorf("a picture has to follow in %s, not\n%s", firstPage, parts[2])
	}
}

// TestFiguresOfTheFirstPageArePrinted: a figure is worth as much as the command that prints it.
func TestFiguresOfTheFirstPageArePrinted(t *testing.T) {
	figures := regexp.MustCompile("`make ([a-z-]+)`: `([a-z_]+)`").FindAllStringSubmatch(read(t, firstPage), -1)
	if len(figures) < 3 {
		t.Fatalf("only %d figures found in %s", len(figures), firstPage)
	}
	printed := map[string]string{
		"demo":           corpus(t, []string{".go"}, "_test.go", "test/demo"),
		"bench-failover": corpus(t, []string{".go"}, "_test.go", "test/bench/failover"),
	}
	// The bench joins names: failover, the announcer, the fault, and what was measured.
	joined := regexp.MustCompile(`^failover_(agent)_([a-z_]+)(_median|_max)$`)
	for _, match := range figures {
		parts := []string{`"` + match[2] + `"`}
		if names := joined.FindStringSubmatch(match[2]); names != nil && match[1] == "bench-failover" {
			parts = []string{`"figure failover_"`, `"` + names[1] + `"`, `"` + names[2] + `"`, `%s` + names[3] + ` `}
		}
		for _, part := range parts {
			if !strings.Contains(printed[match[1]], part) {
				t.Errorf("%s: make %s prints no figure %s: its source lacks %s", firstPage, match[1], match[2], part)
			}
		}
	}
}

// TestVersionsOfTheFirstPage are those that the tests run.
func TestVersionsOfTheFirstPage(t *testing.T) {
	page := read(t, firstPage)
	minors := regexp.MustCompile(`(?m)^MINORS \?= (.+)$`).FindStringSubmatch(read(t, "Makefile"))
	if minors == nil {
		t.Fatal("the Makefile does not say which minors of Kubernetes are tested")
	}
	if row := "| Kubernetes | " + strings.Join(strings.Fields(minors[1]), ", ") + " |"; !strings.Contains(page, row) {
		t.Errorf("%s lacks the row %s", firstPage, row)
	}
	folders, err := filepath.Glob(filepath.Join(root, "test/env/tools/kube-vip/v*"))
	must(t, err)
	if len(folders) == 0 {
		t.Fatal("no version of kube-vip found")
	}
	var versions []string
	for _, folder := range folders {
		versions = append(versions, strings.TrimPrefix(filepath.Base(folder), "v"))
	}
	slices.Sort(versions)
	slices.Reverse(versions)
	if row := "| kube-vip | " + strings.Join(versions, ", "); !strings.Contains(page, row) {
		t.Errorf("%s lacks the row %s", firstPage, row)
	}
}

// TestPicturesCanBeReadByEveryone: they have a name and a description for those who cannot see them, bring their own
// background, and need nothing from elsewhere, which GitHub would not load.
func TestPicturesCanBeReadByEveryone(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/images/*.svg"))
	must(t, err)
	if len(files) < 3 {
		t.Fatalf("only %d pictures found", len(files))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(t, err)
		var picture struct {
			Title string `xml:"title"`
			Desc  string `xml:"desc"`
			Role  string `xml:"role,attr"`
			Rects []struct {
				Fill string `xml:"fill,attr"`
			} `xml:"rect"`
		}
		must(t, xml.Unmarshal(raw, &picture))
		if picture.Title == "" || len(picture.Desc) < 40 || picture.Role != "img" {
			t.Errorf("%s needs a title, a description and the role img", file)
		}
		if len(picture.Rects) == 0 || !strings.HasPrefix(picture.Rects[0].Fill, "#") {
			t.Errorf("%s has no background of its own", file)
		}
		if name := elsewhereIn(t, raw); name != "" {
			t.Errorf("%s refers to something outside, or runs a script: %s", file, name)
		}
		if !strings.Contains(read(t, firstPage), "(docs/images/"+filepath.Base(file)+")") {
			t.Errorf("%s does not show %s", firstPage, file)
		}
	}
}

// elsewhereIn finds what a picture would load or run.
func elsewhereIn(t *testing.T, raw []byte) string {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(string(raw)))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return ""
		}
		must(t, err)
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if slices.Contains([]string{"script", "image", "use", "foreignObject", "a"}, element.Name.Local) {
			return element.Name.Local
		}
		for _, attribute := range element.Attr {
			if strings.Contains(attribute.Value, "://") && attribute.Name.Local != "xmlns" {
				return attribute.Value
			}
		}
	}
}
