//go:build linux

package services

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

const page = "../../../docs/reference/service-kinds.md"

// TestThePageNamesEveryKind compares the table of the documentation with the tests: each row names an existing test,
// and each test has a row.
func TestThePageNamesEveryKind(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| .* \\| `([^`|]+)` \\|$")
	named := map[string]bool{}
	for _, match := range row.FindAllStringSubmatch(string(raw), -1) {
		named[match[1]] = true
	}
	tested := map[string]bool{}
	for _, k := range kinds() {
		if tested[k.name] {
			t.Errorf("two tests are called %q", k.name)
		}
		tested[k.name] = true
	}
	want := slices.Sorted(maps.Keys(tested))
	got := slices.Sorted(maps.Keys(named))
	if !slices.Equal(want, got) {
		t.Errorf("%s names the tests\n%q, and there are\n%q", page, got, want)
	}
	for _, m := range modes() {
		if !strings.Contains(string(raw), m.name) {
			t.Errorf("%s does not name %s", page, m.name)
		}
	}
}

func TestParseTestimony(t *testing.T) {
	said, err := parseTestimony("srv-a 198.51.100.10 8080\n")
	if want := (testimony{server: "srv-a", client: client, port: "8080"}); err != nil || said != want {
		t.Errorf("%+v, %v; want %+v", said, err, want)
	}
	for _, body := range []string{"", "srv-a", "srv-a 198.51.100.10", "srv-a 198.51.100.10 8080 more"} {
		if said, err := parseTestimony(body); err == nil {
			t.Errorf("%q is understood as %+v", body, said)
		}
	}
}

func TestImpactOf(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(tenths int) time.Time { return begin.Add(time.Duration(tenths) * pace) }
	// Each letter is an attempt, a tenth of a second after the one before: o is answered, x is not, s is answered late.
	attempts := func(pattern string) []lab.Attempt {
		var all []lab.Attempt
		for i, c := range pattern {
			a := lab.Attempt{At: at(i), OK: c != 'x', Took: pace / 10}
			if c == 's' {
				a.Took = time.Second
			}
			all = append(all, a)
		}
		return all
	}
	for _, tc := range []struct {
		name, pattern string
		from, to      int
		want          impact
	}{
		{"nothing", "oooooooooo", 2, 7, impact{slowest: pace / 10}},
		{"some fail", "oooxxooooo", 2, 7, impact{failed: 2, outage: 3 * pace, slowest: pace / 10}},
		{"the longest stretch counts", "ooxoxxxooo", 2, 7, impact{failed: 4, outage: 4 * pace, slowest: pace / 10}},
		{"failures of another edit do not count", "xxooooooxx", 3, 6, impact{slowest: pace / 10}},
		{"it goes on after the edit", "oooooxxxxo", 2, 6, impact{failed: 2, outage: 5 * pace, slowest: pace / 10}},
		{"slow", "ooosoooooo", 2, 7, impact{slowest: time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := impactOf(attempts(tc.pattern), edit{from: at(tc.from), to: at(tc.to)}); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
