//go:build unix

package automation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeGo stands for the go command: it writes down how it was called, and answers with the next results.
const fakeGo = `#!/bin/sh
echo "$*" >>calls
run=$(wc -l <calls)
while [ "$1" != --jsonfile ]; do shift; done
cp "$((run)).json" "$2" # wc pads the number on some systems
! grep -q '"Action":"fail"' "$2"
`

// TestStuckMachinesRunAgain: test/env/run-tests runs the package whose machine got stuck once more, and no other one.
func TestStuckMachinesRunAgain(t *testing.T) {
	const module = "example.test/module"
	passed := func(p string) string { return fmt.Sprintf(`{"Action":"pass","Package":"%s/%s"}`, module, p) }
	failed := func(p string) string { return fmt.Sprintf(`{"Action":"fail","Package":"%s/%s"}`, module, p) }
	stuck := func(p string) string {
		return fmt.Sprintf(`{"Action":"output","Package":"%s/%s","Output":"virtual machine: %s: CPU#1"}`, module, p,
			"its kernel is stuck") + "\n" + failed(p)
	}
	for name, tc := range map[string]struct {
		runs  []string
		again string
		fails bool
	}{
		"all pass":                {runs: []string{passed("lab") + "\n" + passed("api")}},
		"a test fails":            {runs: []string{failed("lab") + "\n" + passed("api")}, fails: true},
		"stuck once":              {runs: []string{stuck("lab") + "\n" + passed("api"), passed("lab")}, again: "lab"},
		"stuck twice":             {runs: []string{stuck("lab"), stuck("lab")}, again: "lab", fails: true},
		"stuck, and a test fails": {runs: []string{stuck("lab") + "\n" + failed("api")}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			script, err := filepath.Abs("../../env/run-tests")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			files := map[string]string{"go": fakeGo, "go.mod": "module " + module + "\n", "calls": ""}
			for i, results := range tc.runs {
				files[fmt.Sprintf("%d.json", i+1)] = results + "\n"
			}
			for file, content := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), script, "results.json", "-p", "1", module+"/lab", module+"/api")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("it ends with %v:\n%s", err, out)
			}
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			_, again, _ := strings.Cut(strings.TrimSpace(string(calls)), "\n")
			want := ""
			if tc.again != "" {
				want = "-- -p 1 " + module + "/" + tc.again
			}
			if !strings.HasSuffix(again, want) || (again == "") != (want == "") {
				t.Errorf("it ran again with %q, want %q", again, want)
			}
		})
	}
}
