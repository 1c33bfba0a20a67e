package main

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestRunsOutsideOfTheSourceTree: where the program runs there is neither the source tree nor the go command.
func TestRunsOutsideOfTheSourceTree(t *testing.T) {
	program, err := tools.Product(t.Context(), "./test/sim/pnapsim/cmd/pnapsim")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--latency-response", "0s")
	cmd.Dir = t.TempDir()
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
