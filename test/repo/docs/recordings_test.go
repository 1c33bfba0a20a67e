package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo/terminal"
)

// recorded are the lines of a recording that `make recordings` drew.
func recorded(t *testing.T, name string) []string {
	t.Helper()
	lines, err := terminal.Lines([]byte(read(t, "docs/images/"+name+".svg")))
	must(t, err)
	return lines
}

// outdated is what to do about a recording that shows what the product does not print any more.
const outdated = "run make recordings"

// TestTheServiceRecordedIsWhatIsPrinted: its events have reasons and messages that the controller has today.
func TestTheServiceRecordedIsWhatIsPrinted(t *testing.T) {
	reasons := map[string]bool{}
	for _, c := range declared(t) {
		reasons[c.Value] = true
	}
	messages := formats(t, "controller")
	event := regexp.MustCompile(`^  (?:Normal|Warning) +(\S+) +\S+(?: \(x.*\))? +\S+ +(.+)$`)
	var shown []string
	for _, line := range recorded(t, "service") {
		match := event.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		shown = append(shown, match[1])
		if !reasons[match[1]] {
			t.Errorf("no event has the reason %s any more: %s", match[1], outdated)
		}
		if !messages.match(match[2]) {
			t.Errorf("no event %s says %q any more: %s", match[1], match[2], outdated)
		}
	}
	if all := strings.Join(shown, " "); !strings.Contains(all, "IPBlockBought") ||
		!strings.Contains(all, "IPBlockAssigned") {
		t.Errorf("the recording shows only the events %s", all)
	}
}

// TestTheDiagnosisRecordedIsWhatIsPrinted: it shows checks with the titles and causes that the agent has today, and one
// that fails.
func TestTheDiagnosisRecordedIsWhatIsPrinted(t *testing.T) {
	titles := map[string]string{}
	for _, e := range diagnose.Entries() {
		titles[string(e.ID)] = e.Title
	}
	messages := formats(t, "agent")
	result := regexp.MustCompile(`^  . (OK|FAIL|WARN|SKIP|UNKNOWN) +(PN\d{3}) (.+)$`)
	explanation := regexp.MustCompile(`^      cause {5}(.+)$`)
	checks := 0
	failed := 0
	for _, line := range recorded(t, "diagnose") {
		if match := explanation.FindStringSubmatch(line); match != nil && !messages.match(match[1]) {
			t.Errorf("no check has the cause %q any more: %s", match[1], outdated)
		}
		match := result.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		checks++
		if match[1] == "FAIL" {
			failed++
		}
		title := titles[match[2]]
		shown := match[3][:min(len(match[3]), len(title))] // behind the title stands what was found
		if title == "" || !strings.HasPrefix(title, strings.TrimSpace(shown)) {
			t.Errorf("%s is called %q now, and %q in the recording: %s", match[2], title, match[3], outdated)
		}
	}
	if checks < 10 || failed == 0 {
		t.Errorf("the recording shows %d checks, of which %d failed", checks, failed)
	}
}

// patterns are texts that the product can print.
type patterns []*regexp.Regexp

func (p patterns) match(text string) bool {
	for _, each := range p {
		if each.MatchString(text) {
			return true
		}
	}
	return false
}

// formats are the strings below a directory that are sentences, with anything in place of their verbs, and where they
// are joined to other strings by a blank. Verbs by themselves would match everything.
func formats(t *testing.T, directory string) patterns {
	t.Helper()
	var found patterns
	source := corpus(t, []string{".go"}, "_test.go", directory)
	verb := regexp.MustCompile(`%[a-z]`)
	for _, match := range regexp.MustCompile(`"([^"\\\n]*)"`).FindAllStringSubmatch(source, -1) {
		parts := verb.Split(match[1], -1)
		if len(strings.Fields(strings.Join(parts, " "))) < 2 {
			continue
		}
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		pattern := strings.Join(parts, `.+`)
		if strings.HasPrefix(pattern, " ") {
			pattern = `.+` + pattern
		}
		if strings.HasSuffix(pattern, " ") {
			pattern += `.+`
		}
		found = append(found, regexp.MustCompile(`^`+pattern+`$`))
	}
	if len(found) < 100 {
		t.Fatalf("only %d sentences found below %s", len(found), directory)
	}
	return found
}
