package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// link is a link inside of the project: a path, an anchor, or both.
var link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)

// TestLinksLeadSomewhere follows every link to a file of the project, and to a heading of a page.
//
//proves:known-bugs/broken-examples
func TestLinksLeadSomewhere(t *testing.T) {
	headings := map[string]map[string]bool{}
	for _, page := range pages(t) {
		headings[page] = anchors(read(t, page))
	}
	followed := 0
	anchored := 0
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(prose(read(t, page)), -1) {
			target := page
			if match[1] != "" {
				target = path.Join(path.Dir(page), match[1])
			}
			followed++
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, match[1])
				continue
			}
			if match[2] == "" {
				continue
			}
			anchored++
			if !headings[target][match[2]] {
				t.Errorf("%s: %s has no heading #%s", page, target, match[2])
			}
		}
	}
	if followed < 200 || anchored < 10 {
		t.Errorf("only %d links found, %d of them to a heading; the pattern is out of date", followed, anchored)
	}
}

// TestEveryPageIsReachable starts where a reader starts.
func TestEveryPageIsReachable(t *testing.T) {
	reached := map[string]bool{}
	for queue := []string{"docs/README.md"}; len(queue) > 0; queue = queue[1:] {
		if reached[queue[0]] {
			continue
		}
		reached[queue[0]] = true
		for _, match := range link.FindAllStringSubmatch(prose(read(t, queue[0])), -1) {
			target := path.Join(path.Dir(queue[0]), match[1])
			if info, err := os.Stat(filepath.Join(root, target, "README.md")); err == nil && !info.IsDir() {
				target = path.Join(target, "README.md")
			}
			if strings.HasPrefix(target, "docs/") && strings.HasSuffix(target, ".md") {
				queue = append(queue, target)
			}
		}
	}
	for _, page := range pages(t) {
		if !slices.Contains(elsewhere, page) && !reached[page] {
			t.Errorf("no link leads from docs/README.md to %s", page)
		}
	}
}

var fence = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")

// prose is a page without its blocks of code.
func prose(page string) string { return fence.ReplaceAllString(page, "") }

var (
	heading     = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	punctuation = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the anchors that GitHub gives to the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(prose(page), -1) {
		text := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(match[1], "")
		anchor := strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		unique := anchor
		for i := 1; found[unique]; i++ {
			unique = anchor + "-" + strconv.Itoa(i)
		}
		found[unique] = true
	}
	return found
}

func TestAnchors(t *testing.T) {
	got := anchors("# Two replicas\n```\n# no heading\n```\n## `agent://` and kube-vip, compared\n## Two replicas\n")
	for _, want := range []string{"two-replicas", "agent-and-kube-vip-compared", "two-replicas-1"} {
		if !got[want] {
			t.Errorf("no anchor %s among %v", want, got)
		}
	}
	if len(got) != 3 {
		t.Errorf("anchors %v", got)
	}
}
