package docs

import (
	"regexp"
	"strings"
	"testing"
)

// snippet is what a page asks a reader to type.
type snippet struct {
	page  string
	words []string
}

// block is a fenced block of a page.
type block struct{ page, language, text string }

var fenced = regexp.MustCompile("(?ms)^([ ]*)```([a-z]*)\n(.*?)^[ ]*```$")

func blocks(t *testing.T) []block {
	t.Helper()
	var found []block
	for _, page := range pages(t) {
		for _, match := range fenced.FindAllStringSubmatch(read(t, page), -1) {
			text := strings.ReplaceAll("\n"+match[3], "\n"+match[1], "\n")[1:]
			found = append(found, block{page: page, language: match[2], text: text})
		}
	}
	return found
}

// placeholder is what a reader puts a name of their own in the place of.
var placeholder = regexp.MustCompile(`<[a-z -]+>`)

// ours are the first words of commands that are checked everywhere.
var ours = regexp.MustCompile(`^(kubectl|make|go|helm|/?phoenixnap-agent|/?phoenixnap-cloud-controller-manager|dist/bin/\S+) `)

// bare is only a verb: a mention in a sentence, not a command to type.
var bare = regexp.MustCompile(`^kubectl [a-z]+$`)

// snippets are the commands of all blocks of shell, of what consoles show after the prompt, and of code letters in
// sentences.
func snippets(t *testing.T) []snippet {
	t.Helper()
	var found []snippet
	add := func(page, script string) {
		commands, err := shellCommands(placeholder.ReplaceAllString(script, "worker-1"))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, words := range commands {
			found = append(found, snippet{page: page, words: words})
		}
	}
	for _, b := range blocks(t) {
		switch b.language {
		case "sh":
			add(b.page, b.text)
		case "console":
			for line := range strings.Lines(b.text) {
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					add(b.page, command)
				}
			}
		default:
			for line := range strings.Lines(b.text) {
				if b.language == "" && ours.MatchString(strings.TrimSpace(line)) {
					t.Errorf("%s: a command stands in a block that is not marked sh or console: %s", b.page, line)
				}
			}
		}
	}
	inline := regexp.MustCompile("`([^`\n]+)`")
	for _, page := range pages(t) {
		for _, match := range inline.FindAllStringSubmatch(prose(read(t, page)), -1) {
			if ours.MatchString(match[1]) && !strings.Contains(match[1], "…") && !bare.MatchString(match[1]) {
				add(page, match[1])
			}
		}
	}
	if len(found) < 150 {
		t.Errorf("only %d commands found; the pattern is out of date", len(found))
	}
	return found
}
