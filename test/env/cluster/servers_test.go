//go:build linux

package cluster

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestRestarted: kube-proxy 1.37 ends when its Node gets addresses; without a restart no Service is served any more.
func TestRestarted(t *testing.T) {
	args := restarted("sh", "-c", `echo "runs with $1"; exit 1`, "kube-proxy", "two words")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	var got []string
	for len(got) < 4 && lines.Scan() {
		got = append(got, lines.Text())
	}
	const once = "runs with two words, sh ended with 1"
	if want := once + ", " + once; strings.Join(got, ", ") != want {
		t.Errorf("printed %q, want %q", strings.Join(got, ", "), want)
	}
}

func TestUnknownNetworkPlugin(t *testing.T) {
	if _, err := New(Options{CNI: "calico"}); err == nil || !strings.Contains(err.Error(), `"calico": choose flannel`) {
		t.Errorf("New() = %v, want the choice of network plugins", err)
	}
}
