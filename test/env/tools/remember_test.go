package tools

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRemembered: a program is looked for once in a process, and once in a run; a failure is not remembered, and what
// has vanished since is looked for again.
func TestRemembered(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	writeFile(t, program, "", 0o755)
	looks := 0
	look := func() (string, error) {
		looks++
		return program, nil
	}
	ask := func(b *Toolbox, wantLooks int) {
		t.Helper()
		path, err := b.remembered("program", look)
		if err != nil || path != program || looks != wantLooks {
			t.Fatalf("%q, %v after %d looks, want %q after %d", path, err, looks, program, wantLooks)
		}
	}
	t.Setenv(RunVariable, "")
	single := &Toolbox{Root: t.TempDir()}
	broken := errors.New("broken")
	if _, err := single.remembered("program", func() (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	ask(single, 1)
	ask(single, 1)
	t.Setenv("GOFLAGS", "-tags=other")
	ask(single, 2)

	t.Setenv(RunVariable, t.TempDir())
	shared := &Toolbox{Root: t.TempDir()}
	ask(shared, 3)
	asked.Clear() // as in another process
	ask(shared, 3)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	asked.Clear()
	ask(shared, 4)
	t.Setenv(RunVariable, t.TempDir()) // of another run
	asked.Clear()
	ask(shared, 5)
}

// TestWrongRun: a PNAP_RUN in which nothing can be noted is an error that says so.
func TestWrongRun(t *testing.T) {
	find := func() (string, error) { return "/program", nil }
	for _, dir := range []string{".", "run", filepath.Join(t.TempDir(), "missing")} {
		_, err := foundInRun(dir, "key", find)
		if err == nil || !strings.Contains(err.Error(), RunVariable+"="+dir) ||
			!strings.Contains(err.Error(), "existing directory by its absolute path") {
			t.Errorf("%s=%s: the error is %v", RunVariable, dir, err)
		}
	}
}
