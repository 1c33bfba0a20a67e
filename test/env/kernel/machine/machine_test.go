//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shell runs a script of busybox in a machine.
func shell(t *testing.T, c Config, script string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	c.Command = []string{"sh", "-c", script}
	c.Stdout = &out
	c.Stderr = &errOut
	if c.TimeLimit == 0 {
		c.TimeLimit = 2 * time.Minute
	}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), r.ExitCode
}

func TestOutputAndExitCodeComeBackUnchanged(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := shell(t, Config{Dir: "/somewhere/else", Env: []string{"GREETING=hello world"}},
		`echo "$GREETING"; pwd; echo "to stderr" >&2; exit 42`)
	if want := "hello world\n/somewhere/else\n"; stdout != want {
		t.Errorf("standard output %q, want %q", stdout, want)
	}
	if want := "to stderr\n"; stderr != want {
		t.Errorf("standard error %q, want %q", stderr, want)
	}
	if code != 42 {
		t.Errorf("exit code %d, want 42", code)
	}
}

func TestLargeFilesAndOutputAreComplete(t *testing.T) {
	t.Parallel()
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i>>8) ^ byte(i)
	}
	source := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _, code := shell(t, Config{Files: map[string]string{"/data/large": source}}, "cat /data/large")
	if code != 0 || stdout != string(data) {
		t.Errorf("exit code %d, %d bytes of output came back, want the %d bytes of the file", code, len(stdout),
			len(data))
	}
}

// slowWriter takes its time, as a terminal or a busy computer does.
type slowWriter struct {
	tick  *time.Ticker
	bytes int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.tick.C
	w.bytes += len(p)
	return len(p), nil
}

// TestOutputIsCompleteWhenTheHostIsSlow: a serial port takes megabytes that the host has not read yet; they must not
// be lost when the command ends.
func TestOutputIsCompleteWhenTheHostIsSlow(t *testing.T) {
	t.Parallel()
	const size = 2 << 20
	out := &slowWriter{tick: time.NewTicker(50 * time.Millisecond)}
	defer out.tick.Stop()
	r, err := Run(t.Context(), Config{
		Command: []string{"sh", "-c", "head -c 2097152 /dev/zero"}, Stdout: out, TimeLimit: 2 * time.Minute,
	})
	if err != nil || r.ExitCode != 0 || out.bytes != size {
		t.Errorf("%d of %d bytes came back (exit code %d, %v)", out.bytes, size, r.ExitCode, err)
	}
}

func TestHostProgramsRunWithTheirLibraries(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := shell(t, Config{Programs: []string{"nft"}}, `nft add table inet x && nft list tables`)
	if code != 0 || stdout != "table inet x\n" {
		t.Errorf("exit code %d, output %q %q, want the table that was added", code, stdout, stderr)
	}
}

func TestSmallFilesAndDirectoriesCanBeWrittenAndFetched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one", "sub/b": "two"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Run(t.Context(), Config{
		Command: []string{"sh", "-c", "cat /in/sub/b >> /in/a"}, Files: map[string]string{"/in": dir},
		Fetch: []string{"/in/a", "/does/not/exist"}, TimeLimit: 2 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Files["/in/a"]); got != "onetwo" || len(r.Files) != 1 {
		t.Errorf("fetched %q, want only /in/a with onetwo", r.Files)
	}
}

// A source tree may lie anywhere, and its files keep their paths in the machine.
func TestFilesAreSeenWhereverTheyLie(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "note")
	if err := os.WriteFile(source, []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, dir := range []string{"/tmp/tree", "/home/someone", "/root", "/var/tmp", "/run/user/0", "/mnt/x"} {
		files[dir+"/note"] = source
	}
	paths := slices.Sorted(maps.Keys(files))
	stdout, stderr, code := shell(t, Config{Files: files}, "cat "+strings.Join(paths, " "))
	if want := strings.Repeat("here", len(paths)); code != 0 || stdout != want {
		t.Errorf("exit code %d, output %q %q, want %q", code, stdout, stderr, want)
	}
}

func TestTimeLimitAndCancellationSwitchTheMachineOff(t *testing.T) {
	t.Parallel()
	// A command that ends by itself is no error, so the limit was noticed before.
	_, err := Run(t.Context(), Config{Command: []string{"sleep", "600"}, TimeLimit: 5 * time.Second})
	if !errors.Is(err, ErrTimeLimit) {
		t.Errorf("Run() = %v, want the time limit", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := Run(ctx, Config{Command: []string{"sleep", "600"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run() = %v, want the end of the context", err)
	}
}

func TestUnknownCommandIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Config{Command: []string{"no-such-program"}, TimeLimit: 2 * time.Minute})
	if err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("Run() = %v, want an error that names the program", err)
	}
}

// TestClockCheck: a machine cannot have run for longer than its emulator.
func TestClockCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		uptime  string
		elapsed time.Duration
		wrong   bool
	}{
		"right":         {"2.1s", 2500 * time.Millisecond, false},
		"busy computer": {"2.1s", time.Minute, false},
		"inexact":       {"2.6s", 2500 * time.Millisecond, false},
		"twice as fast": {"5s", 2500 * time.Millisecond, true},
		"no time":       {"soon", 2500 * time.Millisecond, true},
	} {
		if err := checkClock([]byte(tc.uptime), tc.elapsed); errors.Is(err, errWrongClock) != tc.wrong {
			t.Errorf("%s: checkClock() = %v, want an error: %t", name, err, tc.wrong)
		}
	}
}

// TestMachineWithAWrongClockRunsNothing: all limits of the tests in it would be wrong. Such a machine has been seen, 50
// times too fast.
func TestMachineWithAWrongClockRunsNothing(t *testing.T) {
	t.Parallel()
	b, err := prepare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := load(t.Context(), Config{Command: []string{"echo", "ran"}}, b, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e.kernelArguments += " tsc_early_khz=52000" // the emulated counter has the frequency of a real one
	var out bytes.Buffer
	if _, err := e.boot(t.Context(), defaultTimeLimit, &out, &out); !errors.Is(err, errWrongClock) || out.Len() > 0 {
		t.Errorf("boot() = %v, output %q, want no output and %q", err, out.String(), errWrongClock)
	}
}
