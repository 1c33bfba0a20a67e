//go:build linux

package demo

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// TestNetworksStory runs the story of a cluster in two locations, each with a public network.
func TestNetworksStory(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var out strings.Builder
	err := Run(ctx, Options{Out: &out, Dir: t.TempDir(), Scale: 10, Networks: TwoNetworks}, nil)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, figure := range []string{
		"demo_steps_passed 15 steps", "demo_networks_addresses_published_after ",
		"demo_networks_answered_after_return ",
		"demo_networks_lost_requests_elsewhere 0 requests", "blocks_left_in_account 0 blocks",
		"api_rules_broken 0 rules",
	} {
		if !strings.Contains(out.String(), "\nfigure "+figure) {
			t.Errorf("the story prints no line %q", "figure "+figure)
		}
	}
}

// TestNetworksAreChecked: what cannot be played is refused before anything is built, with the value and what to do.
func TestNetworksAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		options Options
		want    []string // parts of the error; none where the story can be played
	}{
		"none given": {Options{}, nil},
		"one":        {Options{Networks: "1", Auto: true, CNI: "flannel", KubeVIP: "v1.0.0"}, nil},
		"two":        {Options{Networks: TwoNetworks}, nil},
		"zero":       {Options{Networks: "0"}, []string{`NETWORKS is "0"`, "set it to 1 or 2"}},
		"three":      {Options{Networks: "3"}, []string{`NETWORKS is "3"`, "set it to 1 or 2"}},
		"a word":     {Options{Networks: "two"}, []string{`NETWORKS is "two"`, "set it to 1 or 2"}},
		"with AUTO":  {Options{Networks: TwoNetworks, Auto: true}, []string{"NETWORKS=2", "AUTO=1", "leave"}},
		"with CNI": {Options{Networks: TwoNetworks, CNI: "flannel"}, []string{"NETWORKS=2", "CNI=flannel",
			"leave"}},
		"with kube-vip": {Options{Networks: TwoNetworks, KubeVIP: "v1.0.0"}, []string{"--kube-vip is v1.0.0", "leave"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.options.check()
			if tc.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			tc.options.Out = io.Discard
			if prepared := Prepare(t.Context(), tc.options); err == nil || prepared == nil ||
				prepared.Error() != err.Error() {
				t.Fatalf("checked: %v, prepared: %v", err, prepared)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestLostSince(t *testing.T) {
	for _, tc := range []struct {
		pattern     string
		since       time.Duration // after begin
		asked, lost int
	}{
		{"", 0, 0, 0}, {"xxooo", 1500 * time.Millisecond, 3, 0}, {"oxoxx", 2 * time.Second, 3, 2},
		{"ooo", time.Minute, 0, 0},
	} {
		asked, lost := lostSince(attemptsOf(tc.pattern), begin.Add(tc.since))
		if asked != tc.asked || lost != tc.lost {
			t.Errorf("%q: %d asked, %d lost, want %d and %d", tc.pattern, asked, lost, tc.asked, tc.lost)
		}
	}
	late := []lab.Attempt{{At: begin, Took: 3 * time.Second}} // it was under way
	if asked, lost := lostSince(late, begin.Add(time.Second)); asked != 1 || lost != 1 {
		t.Errorf("under way: %d asked, %d lost", asked, lost)
	}
	held := []lab.Attempt{{At: begin, Took: 2 * calm}}
	if asked, lost := lostSince(held, begin.Add(calm+1)); asked != 0 || lost != 0 {
		t.Errorf("held up by the machine: %d asked, %d lost", asked, lost)
	}
}

func TestUndisturbed(t *testing.T) {
	row := func(n int) string { return strings.Repeat("o", n) }
	needed := int(2*calm/time.Second) + 1 // one attempt a second
	for pattern, want := range map[string]bool{
		"": false, row(needed): true, row(needed - 1): false, row(needed) + "x": false, "x" + row(needed): true,
		row(needed) + "x" + row(needed-1): false,
	} {
		if _, got := undisturbed(attemptsOf(pattern)); got != want {
			t.Errorf("%q is undisturbed: %t, want %t", pattern, got, want)
		}
	}
}

func TestSilent(t *testing.T) {
	for pattern, want := range map[string]bool{
		"": false, "oooxxxx": false, "oooxxxxx": true, "xxxxxo": false, "oxxxxxxxx": true,
	} {
		if _, got := silent(attemptsOf(pattern)); got != want {
			t.Errorf("%q is silent: %t, want %t", pattern, got, want)
		}
	}
}
