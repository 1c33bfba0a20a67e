package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Outcome is what became of a mutation.
type Outcome string

// The outcomes. A mutation that does not compile proves nothing, and does not count as tried.
const (
	Killed   Outcome = "killed"
	Survived Outcome = "survived"
	Invalid  Outcome = "invalid"
)

// limit is how long the tests of a package may take. A mutation may make them run forever.
const limit = 5 * time.Minute

// Try runs the tests that have to detect a mutation of the repository at root, which stays unchanged. By is the package
// and the test that failed.
func Try(ctx context.Context, root string, m Mutation) (outcome Outcome, by string, err error) {
	dir, err := os.MkdirTemp("", "pnap-mutant-")
	if err != nil {
		return "", "", fmt.Errorf("try a mutation: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := Overlay(root, dir, []Mutation{m})
	if err != nil {
		return "", "", err
	}
	for _, first := range m.rounds() {
		for _, tests := range testsOf(m) {
			pkg, names := namesOf(tests, first)
			if names == "" {
				continue
			}
			out, passed, err := goTool(ctx, root, overlay, "test", "-vet=off", "-failfast", "-count=1", "-run="+names,
				"-timeout="+limit.String(), "./"+pkg)
			switch {
			case err != nil:
				return "", "", err
			case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
				return Invalid, pkg, nil
			case !passed:
				return Killed, pkg + " " + failureIn(out), nil
			}
		}
	}
	return Survived, "no test", nil
}

// rounds returns which test to run, one after the other: the one that is known to fail first, then all.
func (m Mutation) rounds() []string {
	if m.Test == "" {
		return []string{""}
	}
	return []string{m.Test, ""}
}

// namesOf returns the package of some tests of a target, and which of them to run: all, or the first one if it may be
// among them.
func namesOf(tests, first string) (pkg, names string) {
	pkg, selected, some := strings.Cut(tests, " ")
	switch {
	case first == "" && some:
		return pkg, selected
	case first == "":
		return pkg, "."
	case some && !regexp.MustCompile(selected).MatchString(first):
		return pkg, ""
	}
	return pkg, "^" + first + "$"
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// failureIn names the first test that failed, or what ended them all.
func failureIn(out string) string {
	switch found := failed.FindStringSubmatch(out); {
	case strings.Contains(out, "panic: test timed out"):
		return "a timeout"
	case found == nil:
		return "a crash"
	default:
		return found[1]
	}
}

// Overlay writes a file for the option -overlay of the go command into dir. The mutations must not overlap.
func Overlay(root, dir string, mutations []Mutation) (string, error) {
	changed := map[string]string{} // by the path of the original
	for _, m := range mutations {
		original, err := filepath.Abs(filepath.Join(root, m.File))
		if err != nil {
			return "", fmt.Errorf("mutate: %w", err)
		}
		text, err := applyTo(m, root, changed[original])
		if err != nil {
			return "", err
		}
		if changed[original] == "" {
			changed[original] = filepath.Join(dir, flat(m.File))
		}
		if err := os.WriteFile(changed[original], []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("mutate: %w", err)
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		return "", fmt.Errorf("mutate: %w", err)
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, raw, 0o600)
}

// flat is the name of a changed file, which the compiler prints.
func flat(file string) string { return strings.ReplaceAll(file, "/", "-") }

// applyTo applies a mutation to a file that earlier ones have changed, if any.
func applyTo(m Mutation, root, earlier string) (string, error) {
	if earlier == "" {
		return m.Apply(root)
	}
	m.File = earlier
	return m.Apply("")
}

// goTool runs the go command at root, and with the overlay each go command that the tests run: those for another kernel
// compile themselves again. An error means that it could not be run.
func goTool(ctx context.Context, root, overlay string, args ...string) (out string, passed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	var buffer bytes.Buffer
	cmd.Stdout = &buffer
	cmd.Stderr = &buffer
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil {
		return buffer.String(), false, nil
	}
	return buffer.String(), err == nil, err
}
