package reference

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

func TestFill(t *testing.T) {
	page := "before\n<!-- begin one: written by make docs -->\nold\n<!-- end one -->\nafter\n"
	got, err := Fill(page, map[string]string{"one": "new\n"})
	want := strings.Replace(page, "old", "new", 1)
	if err != nil || got != want {
		t.Errorf("Fill = %q, %v, want %q", got, err, want)
	}
	if again, err := Fill(got, map[string]string{"one": "new\n"}); err != nil || again != got {
		t.Errorf("filled twice: %q, %v", again, err)
	}
	for name, page := range map[string]string{
		"unknown table":  page,
		"another end":    strings.Replace(page, "end one", "end two", 1),
		"without an end": strings.Replace(page, "<!-- end one -->", "", 1),
		"end before that": "<!-- begin one: written by make docs -->\n<!-- begin two: written by make docs -->\n<!-- " +
			"end two -->\n",
	} {
		if _, err := Fill(page, map[string]string{"two": ""}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFlags(t *testing.T) {
	help := `Flags:
      --fix string         tool that fixes are written for (netplan or another)
  -o, --output string      text, json or yaml (default "text")
      --strict             let a warning end with exit code 1
      --watch duration[=10s]   look again
      --very-long-name int
`
	want := []Flag{
		{Name: "fix", Value: "string", Usage: "tool that fixes are written for (netplan or another)"},
		{Name: "output", Letter: "o", Value: "string", Usage: "text, json or yaml", Default: "text"},
		{Name: "strict", Usage: "let a warning end with exit code 1"},
		{Name: "watch", Value: "duration[=10s]", Usage: "look again"},
		{Name: "very-long-name", Value: "int"},
	}
	if diff := cmp.Diff(want, Flags(help)); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

func TestMeaning(t *testing.T) {
	w := newWriter([]Constant{
		{Package: "pkg/contract", Name: "TagTrue", Value: "true"},
		{Package: "pkg/contract", Name: "NodeReady", Value: "phoenixnap.com/ready"},
		{Package: "a", Name: "orphan", Value: "wrong"},
	}, []string{"ipAllocation", "location"})
	for comment, want := range map[string]string{
		`is "/28" or TagTrue; the option ipAllocation when empty.`: "`/28` or `true`; the option `ipAllocation` when " +
			"empty",
		"(Warning): an orphan loses contract.NodeReady.":     "an orphan loses `phoenixnap.com/ready`",
		"lists blocks at a location (JSON, see Block.List).": "lists blocks at a location (JSON)",
		"wants --manage=vlan for phoenixnap.com/x in spec.type": "wants `--manage=vlan` for `phoenixnap.com/x` in " +
			"`spec.type`",
		"is one of kube-vip://<network-id> and `TagTrue`": "one of `kube-vip://<network-id>` and `TagTrue`",
	} {
		if got := w.meaning(Constant{Package: "pkg/contract", Comment: comment}); got != want {
			t.Errorf("meaning of %q:\n got %s\nwant %s", comment, got, want)
		}
	}
}

// TestAConstantWithoutACommentIsRefused: a table must not have an empty line.
func TestAConstantWithoutACommentIsRefused(t *testing.T) {
	constants := []Constant{{Package: "a", Name: "Bare", Value: "Bare", Block: "Reasons"}}
	s := Selection{Table: "t", Of: []choice{{Pkg: "a", Block: "Reasons"}}}
	if _, err := s.write(writer{}, constants); err == nil || !strings.Contains(err.Error(), "a.Bare") {
		t.Errorf("error = %v, want one that names the constant", err)
	}
	s.Of[0].Block = "Nothing"
	if _, err := s.write(writer{}, constants); err == nil {
		t.Error("an empty selection is accepted")
	}
}

// TestStepsKeepTheNote: what a fix says in its note is as needed as its commands.
func TestStepsKeepTheNote(t *testing.T) {
	got := steps(check.Fix{File: "/etc/a", Content: "b\n", Commands: []string{"c", "d"}, Note: "the bond needs e"})
	want := "Write to `/etc/a`:\n\n```\nb\n```\n\n```sh\nc\nd\n```\n\nNote: the bond needs e.\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}
