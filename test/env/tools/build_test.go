package tools

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// smallTree is a source tree whose nested module for kube-vip v1.0.0 is a program without dependencies, so that
// a real build takes a second.
func smallTree(t *testing.T, program string) *Toolbox {
	t.Helper()
	root := t.TempDir()
	nested := filepath.Join(root, "test/env/tools/kube-vip/v1.0.0")
	writeFile(t, filepath.Join(root, "go.mod"), "module "+modulePath+"\n\ngo 1.26.0\n", 0o644)
	writeFile(t, filepath.Join(root, "cmd/hello/main.go"), program, 0o644)
	writeFile(t, filepath.Join(nested, "go.mod"), "module example.test/nested\n\ngo 1.26.0\n\nrequire "+kubeVIPModule+
		" v1.0.0\n\nreplace "+kubeVIPModule+" => ./source\n", 0o644)
	writeFile(t, filepath.Join(nested, "go.sum"), "", 0o644)
	writeFile(t, filepath.Join(nested, "source/go.mod"), "module "+kubeVIPModule+"\n\ngo 1.26.0\n", 0o644)
	writeFile(t, filepath.Join(nested, "source/main.go"), program, 0o644)
	return &Toolbox{Root: root, Cache: t.TempDir(), Progress: &lockedWriter{}}
}

const hello = "package main\n\nvar Version = \"none\"\n\nfunc main() { println(\"hello\", Version) }\n"

func TestBinaryIsBuiltOnce(t *testing.T) {
	box := smallTree(t, hello)
	var group sync.WaitGroup
	var paths [3]string
	for i := range paths {
		group.Go(func() {
			path, err := box.Binary(t.Context(), "kube-vip-v1.0.0")
			if err != nil {
				t.Error(err)
			}
			paths[i] = path
		})
	}
	group.Wait()
	if paths[0] != paths[1] || paths[0] != paths[2] {
		t.Errorf("three runs side by side got %v", paths)
	}
	if said := progress(t, box); strings.Count(said, "building kube-vip v1.0.0 (about 1 minute the first time)") != 1 {
		t.Errorf("progress = %q, want one build", said)
	}
	if got := run(t, paths[0]); got != "hello v1.0.0\n" {
		t.Errorf("the program printed %q", got)
	}
	checkEntries(t, filepath.Join(box.Cache, "tools"), 1)
}

func TestBinaryIsBuiltAgainWhenPinsChange(t *testing.T) {
	box := smallTree(t, hello)
	first, err := box.Binary(t.Context(), "kube-vip-v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	sum := filepath.Join(box.Root, "test/env/tools/kube-vip/v1.0.0/go.sum")
	writeFile(t, sum, "example.test/other v1.0.0 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n", 0o644)
	second, err := box.Binary(t.Context(), "kube-vip-v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Errorf("a changed go.sum leads to the same program %s", first)
	}
}

// TestToolchain: a program is built again for other flags, but not for one that every build has.
func TestToolchain(t *testing.T) {
	of := func(flags string) string {
		t.Setenv("GOFLAGS", flags)
		toolchain, err := goToolchain(t.Context(), ".")
		if err != nil {
			t.Fatal(err)
		}
		return toolchain
	}
	if of("-v -trimpath") != of("-v") {
		t.Error("-trimpath, with which everything is built, builds it again")
	}
	if of("-race") == of("-v") {
		t.Error("other flags build nothing again")
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	box := smallTree(t, "package main\n\nfunc main() { undefinedName() }\n")
	_, err := box.Binary(t.Context(), "kube-vip-v1.0.0")
	checkError(t, err, "build kube-vip v1.0.0: go build")
	checkError(t, err, "undefined: undefinedName")
	checkEntries(t, filepath.Join(box.Cache, "tools"), 0)
}

func TestNoGo(t *testing.T) {
	box := smallTree(t, hello)
	t.Setenv("PATH", t.TempDir())
	_, err := box.Binary(t.Context(), "kube-vip-v1.0.0")
	checkError(t, err, "install Go 1.26")
	_, err = box.Product(t.Context(), "./cmd/hello")
	checkError(t, err, "install Go 1.26")
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	box := smallTree(t, hello)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted by the test"))
	_, err := box.Binary(ctx, "kube-vip-v1.0.0")
	checkError(t, err, "interrupted by the test")
	if entries, err := os.ReadDir(filepath.Join(box.Cache, "tools")); err == nil && len(entries) > 0 {
		t.Errorf("left %v", entries)
	}
}

func TestProductFollowsItsSource(t *testing.T) {
	box := smallTree(t, hello)
	first := product(t, box)
	if again := product(t, box); again != first {
		t.Errorf("an unchanged program moved from %s to %s", first, again)
	}
	writeFile(t, filepath.Join(box.Root, "cmd/hello/main.go"), strings.ReplaceAll(hello, "hello", "changed"), 0o644)
	second := product(t, box)
	if got := run(t, first) + run(t, second); got != "hello none\nchanged none\n" {
		t.Errorf("old and new program printed %q", got)
	}
	if filepath.Base(second) != "hello" {
		t.Errorf("the program is called %s, want its own name", filepath.Base(second))
	}
}

func TestProductForgetsOldBuilds(t *testing.T) {
	box := smallTree(t, hello)
	first := product(t, box)
	old := time.Now().Add(-2 * productAge)
	if err := os.Chtimes(filepath.Dir(first), old, old); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(box.Root, "cmd/hello/main.go"), strings.ReplaceAll(hello, "hello", "changed"), 0o644)
	product(t, box)
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a build that was not used for two weeks is still there (%v)", err)
	}
}

func TestProductRefusesForeignPackages(t *testing.T) {
	box := smallTree(t, hello)
	for _, pkg := range []string{"example.com/other", "./", "agent"} {
		_, err := box.Product(t.Context(), pkg)
		checkError(t, err, "want a package of this project")
	}
}

func TestLockWaitsUntilTheContextEnds(t *testing.T) {
	box := &Toolbox{Cache: t.TempDir(), Progress: &lockedWriter{}}
	release, err := box.lock(t.Context(), "thing")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*lockSay*lockPoll, errors.New("waited long enough"))
	defer cancel()
	_, err = box.lock(ctx, "thing")
	checkError(t, err, "waited long enough")
	release()
	again, err := box.lock(t.Context(), "thing")
	if err != nil {
		t.Fatal(err)
	}
	again()
	if said := progress(t, box); strings.Count(said, "waiting for another run") != 1 {
		t.Errorf("progress = %q, want one message", said)
	}
}

func product(t *testing.T, box *Toolbox) string {
	t.Helper()
	path, err := box.Product(t.Context(), "./cmd/hello")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func checkEntries(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != want {
		t.Errorf("%s holds %v (%v), want %d entries", dir, entries, err, want)
	}
}

// progress is what a toolbox said so far.
func progress(t *testing.T, box *Toolbox) string {
	t.Helper()
	writer, isOurs := box.Progress.(*lockedWriter)
	if !isOurs {
		t.Fatalf("progress goes to %T", box.Progress)
	}
	return writer.String()
}

// lockedWriter is a buffer that several runs may write to.
type lockedWriter struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *lockedWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
