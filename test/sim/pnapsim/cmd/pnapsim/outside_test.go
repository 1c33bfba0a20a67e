package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunsOutsideOfTheSourceTree: where the program runs there is neither the source tree nor the go command.
func TestRunsOutsideOfTheSourceTree(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "pnapsim")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "--latency-response", "0s")
	cmd.Dir = dir
	cmd.Env = []string{}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("it ended without serving: %s", said.String())
	}
	url := strings.TrimPrefix(strings.TrimSpace(line), "listening ")
	if got := get(t, url+"/location-api/v1/locations"); !strings.Contains(got, `"location":"ASH"`) {
		t.Errorf("locations %s", got)
	}
	if got := get(t, url+"/_fake/violations"); strings.TrimSpace(got) != "[]" {
		t.Errorf("violations %s", got)
	}
}
