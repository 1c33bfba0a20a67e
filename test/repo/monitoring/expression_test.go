package monitoring

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	selector = regexp.MustCompile(`\b([a-z_]+_[a-z0-9_]+)\b\s*(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(=~|!=|!~|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)`)
	// keywords of PromQL look like names of metrics.
	keywords = []string{"group_left", "group_right", "histogram_quantile"}
	// scraped are the labels that Prometheus adds when it collects, or that a histogram has.
	scraped = []string{"instance", "le"}
)

// faults lists the names in an expression that no program exposes.
func (c catalogue) faults(expression string) []string {
	var faults []string
	for _, found := range grouping.FindAllStringSubmatch(expression, -1) {
		for _, label := range strings.FieldsFunc(found[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !slices.Contains(scraped, label) && !c.carries(label) {
				faults = append(faults, "no metric has the label "+label)
			}
		}
	}
	bare := grouping.ReplaceAllString(expression, "")
	for _, found := range selector.FindAllStringSubmatch(regexp.MustCompile(`"[^"]*"`).ReplaceAllStringFunc(bare,
		hideNames), -1) {
		if !slices.Contains(keywords, found[1]) && !strings.HasPrefix(found[1], "__") {
			faults = append(faults, c.faultsOfSelector(found[1], found[2])...)
		}
	}
	return faults
}

// hideNames keeps what stands in quotation marks from looking like a metric; the words are checked elsewhere.
func hideNames(quoted string) string { return strings.ReplaceAll(quoted, "_", "-") }

func (c catalogue) faultsOfSelector(name, matchers string) []string {
	labels, known := c[name]
	if !known {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, isPart := strings.CutSuffix(name, suffix); isPart && !known {
				labels, known = c[base]
			}
		}
	}
	if !known {
		if matchers == "" && !strings.Contains(name, "phoenixnap") {
			return nil // a label of by(), or a function
		}
		return []string{"no metric is called " + name}
	}
	var faults []string
	for _, found := range matcher.FindAllStringSubmatch(matchers, -1) {
		if !slices.Contains(labels, found[1]) && !slices.Contains(scraped, found[1]) {
			faults = append(faults, fmt.Sprintf("%s has no label %s", name, found[1]))
		}
	}
	return faults
}

func TestFaultsAreFound(t *testing.T) {
	c := catalogue{"a_metric_total": {"code"}, "phoenixnap_seconds": {"endpoint"}}
	for expression, want := range map[string]string{
		`sum by (code) (rate(a_metric_total{code=~"5.."}[5m])) > 0`:                                    "[]",
		`histogram_quantile(0.9, sum by (le, endpoint) (rate(phoenixnap_seconds_bucket[5m])))`:         "[]",
		`sum(a_metric_total{status="5"})`:                                                              "[a_metric_total has no label status]",
		`sum by (status) (a_metric_total)`:                                                             "[no metric has the label status]",
		`phoenixnap_nothing > 0`:                                                                       "[no metric is called phoenixnap_nothing]",
		`other_metric{code="5"} > 0`:                                                                   "[no metric is called other_metric]",
		`a_metric_total * on (instance) group_left (node) phoenixnap_seconds`:                          "[no metric has the label node]",
		`a_metric_total{code="phoenixnap_nothing"} == 1 unless on (endpoint) phoenixnap_seconds_count`: "[]",
	} {
		if got := fmt.Sprint(c.faults(expression)); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}

// words are what an expression compares conditions and reasons with.
func words(expression string) []string {
	var all []string
	for _, found := range matcher.FindAllStringSubmatch(expression, -1) {
		if found[1] == "reason" || found[1] == "condition" || found[1] == "standing" || found[1] == "membership" {
			all = append(all, strings.Split(found[3], "|")...)
		}
	}
	return all
}

// checkWords holds the words of an expression against the words of the code.
func checkWords(t *testing.T, said map[string]bool, expression string) {
	t.Helper()
	for _, word := range words(expression) {
		if !said[word] {
			t.Errorf("%s: nothing in the code contains %q", expression, word)
		}
	}
}

// literals are the strings of one word in the code of both programs.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	literal := regexp.MustCompile(`"([A-Za-z-]+)"`)
	found := map[string]bool{}
	for _, dir := range []string{"pkg", "controller", "agent"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			for _, each := range literal.FindAllStringSubmatch(string(raw), -1) {
				found[each[1]] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 200 || found["NobodySaysThis"] {
		t.Fatalf("%d words found: the pattern is out of date", len(found))
	}
	return found
}

// checkEndpoints compares the endpoints in an expression with the operations of the client.
func checkEndpoints(t *testing.T, expression string) {
	t.Helper()
	for _, found := range matcher.FindAllStringSubmatch(expression, -1) {
		if found[1] != "endpoint" {
			continue
		}
		matches := 0
		whole := regexp.MustCompile("^(?:" + found[3] + ")$")
		for _, operation := range operations(t) {
			if whole.MatchString(operation) {
				matches++
			}
		}
		if matches == 0 {
			t.Errorf("%s: no operation of the client matches %q", expression, found[3])
		}
	}
}

// operations are the names of requests in the client of the phoenixNAP API.
func operations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "controller", "cloud", "pnap", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	operation := regexp.MustCompile(`withOperation\(ctx, "([^"]+)"\)`)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range operation.FindAllStringSubmatch(string(raw), -1) {
			all = append(all, found[1])
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d operations found: the pattern is out of date", len(all))
	}
	return all
}
