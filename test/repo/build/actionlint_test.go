package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLintReadsWorkflows runs actionlint as make lint does: over the workflows of the repository, which are correct,
// and over one with three errors.
func TestLintReadsWorkflows(t *testing.T) {
	recipe, err := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "-C", "../../..",
		"lint").CombinedOutput()
	if err != nil {
		t.Fatalf("make lint: %v\n%s", err, recipe)
	}
	var command []string
	for line := range strings.Lines(string(recipe)) {
		if strings.Contains(line, "actionlint") {
			command = strings.Fields(line)
		}
	}
	if len(command) == 0 {
		t.Fatalf("make lint does not run actionlint:\n%s", recipe)
	}
	lint := func(files ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), command[0], slices.Concat(command[1:], files)...)
		cmd.Dir = "../../.."
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := lint(); err != nil {
		t.Errorf("the workflows of the repository: %v\n%s", err, out)
	}
	const wrong = "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    needs: b\n    steps:\n" +
		"      - run: echo ${{ github.sah }}\n      - uses: actions/checkout@v4\n        given: {path: x}\n"
	path := filepath.Join(t.TempDir(), "wrong.yml")
	if err := os.WriteFile(path, []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := lint(path)
	if err == nil {
		t.Error("a workflow with errors passes")
	}
	for _, problem := range []string{`"b" which does not exist`, `"sah" is not defined`, `unexpected key "given"`} {
		if !strings.Contains(out, problem) {
			t.Errorf("actionlint does not report %s:\n%s", problem, out)
		}
	}
}
