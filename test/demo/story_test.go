//go:build linux

package demo

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo/terminal"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestStory runs the whole story beside the newest and the oldest kube-vip: with one of them of a Service without a
// class, with the other of one of the controller's own class, which kube-vip serves because the manifest names it.
//
//proves:service-changes/node-dies
//proves:service-changes/vlan-lost
func TestStory(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	versions, err := tools.KubeVIPs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for class, version := range map[string]string{"": versions[0],
		contract.LoadBalancerClass: versions[len(versions)-1]} {
		t.Run("class "+class+", kube-vip "+version, func(t *testing.T) {
			var out strings.Builder
			o := Options{Out: &out, Dir: t.TempDir(), KubeVIP: version, Class: class, Scale: 10}
			recorded := Screens()
			if class == "" { // as in the recordings
				o.Record = func(name string, c terminal.Command) {
					recorded[name].Commands = append(recorded[name].Commands, c)
				}
			}
			err := Run(ctx, o, nil)
			t.Log("\n" + out.String())
			if err != nil {
				t.Fatal(err)
			}
			if announcer := "kube-vip " + version + " announces from "; !strings.Contains(out.String(), announcer) {
				t.Errorf("the story does not say %q", announcer)
			}
			if o.Record != nil {
				compareRecordings(t, recorded)
			}
			for _, figure := range []string{
				"demo_steps_passed 13 steps", "demo_seconds ", "address_published_after ", "first_http_answer_after ",
				"vlan_fault_seen_after ", "failover_vlan_broken ", "failover_node_dead ",
				"blocks_left_in_account 0 blocks",
				"api_rules_broken 0 rules",
			} {
				if !strings.Contains(out.String(), "\nfigure "+figure) {
					t.Errorf("the story prints no line %q", "figure "+figure)
				}
			}
		})
	}
}

// compareRecordings compares what the story printed with the pictures that README.md shows.
func compareRecordings(t *testing.T, recorded map[string]*terminal.Screen) {
	t.Helper()
	for name, screen := range recorded {
		svg, err := screen.SVG()
		if err != nil {
			t.Fatal(err)
		}
		shown, err := os.ReadFile(filepath.Join("../../docs/images", name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stable(t, shown), stable(t, svg)); diff != "" {
			t.Errorf("the recording %s is out of date: run make recordings (-shown +printed):\n%s", name, diff)
		}
	}
}

// chance is what differs between two runs: IDs, ages, addresses, the server that announces, the width of columns.
var chance = regexp.MustCompile(`\b[0-9a-f]{24}\b|\b[0-9a-f]{8}(-[0-9a-f]+){4}|([0-9a-f]{2}:){5}[0-9a-f]{2}|` +
	`\b[0-9]+[smh0-9]*|srv-[ab]`)

// furtherBlocks are all but one of the IP blocks of the public network, once as a list and once with their gateways. A
// Node learns of a Service's block up to a minute after it was bought.
var furtherBlocks = regexp.MustCompile(`(\*\.\*\.\*\.\*/\*\(gateway\*\.\*\.\*\.\*\),)+|(,\*\.\*\.\*\.\*/\*)+`)

// agentEvent is an event of an agent about an address: which there are by then depends on how busy the machine is.
var agentEvent = regexp.MustCompile(`(Normal|Warning)Address[A-Za-z]+\*phoenixnapagent.*?\(reportedbynode\*\)`)

// stable is what a picture says, an event a line, without what is left to chance. The terminal breaks long lines
// wherever they end.
func stable(t *testing.T, svg []byte) []string {
	t.Helper()
	lines, err := terminal.Lines(svg)
	if err != nil {
		t.Fatal(err)
	}
	text := chance.ReplaceAllString(strings.Join(lines, ""), "*")
	text = furtherBlocks.ReplaceAllString(strings.NewReplacer(" ", "", "-", "").Replace(text), "")
	text = agentEvent.ReplaceAllString(text, "")
	return strings.SplitAfter(strings.ReplaceAll(text, "Normal", "\nNormal"), "\n")
}

// TestStable: a picture says the same whether the Node knew the Service's block by then or not.
func TestStable(t *testing.T) {
	both := "blocks 203.0.113.8/29, 198.51.100.0/28\n" +
		"assigned: 203.0.113.8/29 (gateway 203.0.113.9), 198.51.100.0/28 (gateway 198.51.100.1)"
	one := "blocks 198.51.100.0/28\nassigned: 198.51.100.0/28 (gateway 198.51.100.1)"
	other := "blocks 198.51.100.0/28\nassigned: none"
	say := func(text string) []string {
		screen := terminal.Screen{Columns: 80, Commands: []terminal.Command{{Typed: "diagnose", Output: text}}}
		svg, err := screen.SVG()
		if err != nil {
			t.Fatal(err)
		}
		return stable(t, svg)
	}
	if diff := cmp.Diff(say(both), say(one)); diff != "" {
		t.Errorf("two blocks and one differ:\n%s", diff)
	}
	if cmp.Equal(say(one), say(other)) {
		t.Error("a block and none are the same")
	}
}

// TestAutoStory runs the story of servers that no user configures.
func TestAutoStory(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var out strings.Builder
	err := Run(ctx, Options{Out: &out, Dir: t.TempDir(), Scale: 10, Auto: true}, nil)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, figure := range []string{
		"demo_steps_passed 12 steps", "vlan_repaired_after ", "return_path_repaired_after ", "failover_node_dead ",
		"blocks_left_in_account 0 blocks", "api_rules_broken 0 rules",
	} {
		if !strings.Contains(out.String(), "\nfigure "+figure) {
			t.Errorf("the story prints no line %q", "figure "+figure)
		}
	}
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// attemptsOf makes an attempt of each letter, a second after the one before: o is answered, x is not.
func attemptsOf(pattern string) []lab.Attempt {
	var all []lab.Attempt
	for i, c := range pattern {
		all = append(all, lab.Attempt{At: begin.Add(time.Duration(i) * time.Second), OK: c == 'o'})
	}
	return all
}

// TestRepairedAnswer: a disturbance is over when it was reported and answers come in a row; whether a request failed
// meanwhile or not.
func TestRepairedAnswer(t *testing.T) {
	for _, tc := range []struct {
		name, pattern   string
		fault, reported float64 // seconds after begin
		want            int     // the attempt that ends it, -1 for none
	}{
		{"no request failed", "oooooooooooo", 1.5, 2.5, 2},
		{"some failed", "ooxxoooooooo", 1.5, 3.5, 4},
		{"some failed after it was reported", "ooxoxxooooooo", 1.5, 2.5, 6},
		{"reported late", "ooxxoooooooo", 1.5, 6.5, 4},
		{"not yet long enough", "ooxxoooooo", 1.5, 5.5, -1},
		{"no answer yet", "ooxxxxxxxx", 1.5, 3.5, -1},
		{"no attempt yet", "oo", 1.5, 3.5, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := attemptsOf(tc.pattern)
			at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
			got, ok := repairedAnswer(all, at(tc.fault), at(tc.reported))
			if ok != (tc.want >= 0) {
				t.Fatalf("repaired: %t, want %t", ok, tc.want >= 0)
			}
			if ok && got != all[tc.want] {
				t.Errorf("repaired at %s, want at %s", got.At, all[tc.want].At)
			}
		})
	}
}

func TestRecovery(t *testing.T) {
	for _, tc := range []struct {
		name, pattern string
		fault         int // seconds after begin
		want          int // the attempt that ends the outage, -1 for none
	}{
		{"nothing failed", "oooooooooo", 2, -1},
		{"not yet", "ooxxxx", 2, -1},
		{"answers in a row", "ooxxxooooo", 2, 5},
		{"one lucky answer does not end it", "ooxxoxxooooo", 2, 7},
		{"too few so far", "ooxxxoooo", 2, -1},
		{"an old failure is none of this fault", "xxooooooooxxooooo", 9, 12},
		{"the first requests after the fault still passed", "ooooxxooooo", 2, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := attemptsOf(tc.pattern)
			got, ok := recovery(all, begin.Add(time.Duration(tc.fault)*time.Second))
			if ok != (tc.want >= 0) {
				t.Fatalf("recovered: %t, want %t", ok, tc.want >= 0)
			}
			if ok && got != all[tc.want] {
				t.Errorf("recovered at %s, want at %s", got.At, all[tc.want].At)
			}
		})
	}
}

func TestUntilSaysWhatItSaw(t *testing.T) {
	seen := 0
	_, err := until(t.Context(), 3*poll, "the light", func(context.Context) (bool, string, error) {
		seen++
		if seen == 1 {
			return false, "", errors.New("too dark to look")
		}
		return false, "it is dark", nil
	})
	if err == nil || !strings.Contains(err.Error(), "the light") || !strings.Contains(err.Error(), "it is dark") {
		t.Errorf("the error %v does not contain what was awaited and what was found", err)
	}
	if _, err := until(t.Context(), time.Minute, "the light",
		func(context.Context) (bool, string, error) { return true, "", nil }); err != nil {
		t.Error(err)
	}
}

func TestTaleCountsAndStops(t *testing.T) {
	var out strings.Builder
	reported := newPresenter(&out)
	if err := reported.step(t.Context(), "works", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := reported.step(t.Context(), "breaks",
		func(context.Context) error { return errors.New("a reason") }); err == nil {
		t.Fatal("a failed step is no error")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reported.step(cancelled, "interrupted", func(context.Context) error { return nil }); err == nil {
		t.Fatal("a step that was interrupted passes")
	}
	reported.summary()
	for _, want := range []string{"figure demo_steps_passed 1 steps\n", "a reason", "FAILED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
