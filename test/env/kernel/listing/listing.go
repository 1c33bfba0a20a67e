// Package listing lists the state of a network namespace as an administrator does, so that tests can compare it before
// and after a disturbance.
package listing

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Commands list addresses, routes of all tables, rules and nftables; of the interface link with all details.
func Commands(link string) [][]string {
	return [][]string{
		{"ip", "-details", "address", "show", "dev", link},
		{"ip", "-brief", "address", "show"},
		{"ip", "-details", "-4", "route", "show", "table", "all"},
		{"ip", "-details", "-6", "route", "show", "table", "all"},
		{"ip", "-details", "-4", "rule", "show"},
		{"ip", "-details", "-6", "rule", "show"},
		{"nft", "--stateless", "list", "ruleset"},
	}
}

// number is what the kernel numbers again when an interface is made again.
var number = regexp.MustCompile(`^\d+: `)

// Lines returns the output of a command in the kernel's order. Sorted are only interfaces, rules, which show their
// priority, and IPv6 routes: the kernel lists the same destination by several interfaces (fe80::/64, ff00::/8) in the
// order in which they came up, and finds each by its interface. The brief line of the interface link is left out: it is
// listed with details.
func Lines(command []string, output, link string) []string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	brief := slices.Contains(command, "-brief")
	if brief || slices.Contains(command, "-6") || slices.Contains(command, "rule") {
		slices.Sort(lines)
	}
	kept := make([]string, 0, len(lines))
	for _, line := range lines {
		if !brief || !strings.HasPrefix(line, link+"@") && !strings.HasPrefix(line, link+" ") {
			kept = append(kept, strings.TrimRight(number.ReplaceAllString(line, ""), " "))
		}
	}
	return kept
}

// patience is how long the kernel and the programs of a machine may take to finish what they do by themselves.
const patience = time.Minute

// Settled waits until the same is listed twice, without an IPv6 address that the kernel still checks for duplicates,
// and returns it.
func Settled(t testing.TB, list func() []string) []string {
	t.Helper()
	var listed []string
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Second, patience, true,
		func(context.Context) (bool, error) {
			before := listed
			listed = list()
			tentative := slices.ContainsFunc(listed, func(l string) bool { return strings.Contains(l, " tentative") })
			return !tentative && slices.Equal(before, listed), nil
		})
	if err != nil {
		t.Fatalf("the network does not settle: %v", err)
	}
	return listed
}

// AsBefore waits until everything is listed as before a disturbance.
func AsBefore(t testing.TB, disturbance string, before []string, list func() []string) {
	t.Helper()
	var after []string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			after = list()
			return slices.Equal(before, after), nil
		})
	if err != nil {
		t.Fatalf("after %s not everything is listed as before (-before +after):\n%s", disturbance,
			cmp.Diff(before, after))
	}
}
