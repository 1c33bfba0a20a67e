package docs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommands(t *testing.T) {
	for script, want := range map[string][][]string{
		"make demo    # shown step by step\nmake test": {{"make", "demo"}, {"make", "test"}},
		"a 'b c' \"d \\\" e\" f\\ g":                   {{"a", "b c", `d " e`, "f g"}},
		"A=b C='d e' run --x=y >file 2>&1 | tail -1 && next; last": {{"run", "--x=y"}, {"tail", "-1"}, {"next"},
			{"last"}},
		"one \\\n    two \"$(three -o name | four)\" -- five": {{"three", "-o", "name"}, {"four"},
			{"one", "two", substituted, "--", "five"}},
		"A=b": nil,
		"get x -o jsonpath='{range .a[*]}{\"\\n\"}{end}'": {{"get", "x", "-o",
			`jsonpath={range .a[*]}{"\n"}{end}`}},
		"sed -n 's/#//p' file#1": {{"sed", "-n", "s/#//p", "file#1"}},
		"taint node n a.b/c=true:NoSchedule": {{"taint", "node", "n",
			"a.b/c=true:NoSchedule"}},
		"patch node n -p '{\"spec\":{\"providerID\":\"x://y\"}}' \"\"": {{"patch", "node", "n", "-p",
			`{"spec":{"providerID":"x://y"}}`, ""}},
	} {
		got, err := shellCommands(script)
		if err != nil {
			t.Errorf("%s: %v", script, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", script, diff)
		}
	}
}

func TestWhatIsNotUnderstoodIsAnError(t *testing.T) {
	for _, script := range []string{"a 'b", "a \"b", "a $(b", "a \"$(b\"", "cat <<EOF\nx\nEOF"} {
		if got, err := shellCommands(script); err == nil {
			t.Errorf("%q: %q and no error", script, got)
		}
	}
}

func FuzzCommands(f *testing.F) {
	f.Add("a \"$(b 'c')\" # d\n\\\n")
	f.Fuzz(func(t *testing.T, script string) {
		commands, err := shellCommands(script)
		for _, words := range commands {
			if len(words) == 0 && err == nil {
				t.Errorf("%q: a command without words", script)
			}
		}
	})
}
