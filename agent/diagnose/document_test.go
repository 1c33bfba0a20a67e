package diagnose

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// TestJSON holds the fields of the document against a golden file: programs read them. A field that goes or changes its
// meaning needs a new SchemaVersion.
func TestJSON(t *testing.T) {
	d := duplicate()
	d.Findings = append(brokenVLAN().Findings, d.Findings...)
	d.APIServer = "list Nodes: forbidden"
	var got bytes.Buffer
	if err := d.JSON(&got); err != nil {
		t.Fatal(err)
	}
	compare(t, filepath.Join("testdata", "document.json"), got.String())
}

func TestYAMLHoldsWhatJSONHolds(t *testing.T) {
	for name, d := range map[string]Document{"healthy": healthy(), "broken": brokenVLAN(), "address": duplicate(),
		"undetermined": undetermined()} {
		t.Run(name, func(t *testing.T) {
			var asJSON, asYAML bytes.Buffer
			if err := d.JSON(&asJSON); err != nil {
				t.Fatal(err)
			}
			if err := d.YAML(&asYAML); err != nil {
				t.Fatal(err)
			}
			var fromJSON, fromYAML any
			if err := json.Unmarshal(asJSON.Bytes(), &fromJSON); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(asYAML.Bytes(), &fromYAML); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
				t.Errorf("YAML differs from JSON (-JSON +YAML):\n%s", diff)
			}
		})
	}
}

func TestJSONComesBack(t *testing.T) {
	want := duplicate().Sum()
	var raw bytes.Buffer
	if err := want.JSON(&raw); err != nil {
		t.Fatal(err)
	}
	var got Document
	if err := json.Unmarshal(raw.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(want.Address.Address)); diff != "" {
		t.Errorf("document after JSON (-want +got):\n%s", diff)
	}
}

func TestExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		statuses     []check.Status
		want, strict int
	}{
		"healthy":               {[]check.Status{check.OK, check.Skip}, ExitOK, ExitOK},
		"warned":                {[]check.Status{check.OK, check.Skip, check.Warn}, ExitOK, ExitFailed},
		"failed":                {[]check.Status{check.OK, check.Fail}, ExitFailed, ExitFailed},
		"unknown":               {[]check.Status{check.Unknown, check.OK}, ExitUndetermined, ExitUndetermined},
		"unknown beside warned": {[]check.Status{check.Unknown, check.Warn}, ExitUndetermined, ExitUndetermined},
		"failed beside unknown": {[]check.Status{check.Unknown, check.Fail}, ExitFailed, ExitFailed},
		"nothing":               {nil, ExitOK, ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			d := documentOf(tc.statuses...)
			if got := d.ExitCode(false); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
			if got := d.ExitCode(true); got != tc.strict {
				t.Errorf("strict exit code %d, want %d", got, tc.strict)
			}
		})
	}
}

func documentOf(statuses ...check.Status) Document {
	var d Document
	for i, status := range statuses {
		d.Findings = append(d.Findings, check.Finding{ID: check.ID("PN10" + string(rune('0'+i))), Status: status,
			Cause: "cause"})
	}
	return d
}

func TestFirstCauseIsTheFirstOfTheWorst(t *testing.T) {
	d := documentOf(check.Warn, check.Unknown, check.Fail, check.Fail, check.OK).Sum()
	if d.Result.Status != check.Fail || d.Result.FirstCause != "PN102" || d.Result.Counts[check.Fail] != 2 {
		t.Errorf("result %+v, want FAIL with first cause PN102 of two", d.Result)
	}
}

// TestWorst: the network to fix first is shown, and the others are named.
func TestWorst(t *testing.T) {
	in := func(name string, statuses ...check.Status) InNetwork {
		n := InNetwork{Name: name, Document: Document{Network: name}}
		for _, s := range statuses {
			n.Findings = append(n.Findings, check.Finding{Status: s})
		}
		return n
	}
	for _, tc := range []struct {
		all   []InNetwork
		shown string
	}{
		{[]InNetwork{in("a", check.OK), in("b", check.OK)}, "a"},
		{[]InNetwork{in("a", check.Warn), in("b", check.OK, check.Fail), in("c", check.Fail)}, "b"},
		{[]InNetwork{in("a", check.Unknown), in("b", check.Warn)}, "a"},
	} {
		d := Worst(tc.all)
		var others []OtherNetwork
		for _, n := range tc.all {
			if n.Name != tc.shown {
				others = append(others, OtherNetwork{Name: n.Name, Status: n.Sum().Result.Status})
			}
		}
		if d.Network != tc.shown || !slices.Equal(d.OtherNetworks, others) {
			t.Errorf("of %+v, %s is shown beside %v", tc.all, d.Network, d.OtherNetworks)
		}
		var written strings.Builder
		if err := d.Text(&written, Style{}, ""); err != nil ||
			!strings.Contains(written.String(), "(--public-network="+others[0].Name+")") {
			t.Errorf("the text does not name the others (%v):\n%s", err, &written)
		}
	}
}
