//go:build linux && e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/e2e/node"
)

// allowed expects that no program has been refused anything, by the API server or by the kernel, so far. With a pod its
// log goes, too.
func (s *site) allowed() {
	s.Helper()
	for _, server := range s.on {
		out, err := s.Lab.Exec(s.Context(), server.Name, "grep", "-r", "-i", "-E",
			"forbidden|permission denied|read-only file system|panic:", node.OnServer("/var/log/pods"))
		check(s.T, err)
		switch out.Code {
		case 1: // no line
		case 0:
			s.Errorf("logs of pods on %s:\n%.4000s", server.Name, out.Stdout)
		default:
			s.Errorf("logs of pods on %s: %s", server.Name, out.Stderr)
		}
	}
}

// keepLogs copies what containerd, kubelet and all containers have written to the test's artifacts. What cannot be had
// is reported in its place.
func (s *site) keepLogs(ctx context.Context) {
	dir := s.ArtifactDir()
	s.Logf("logs: %s", dir)
	if s.Lab == nil {
		return
	}
	if _, err := s.CopyLogs(ctx); err != nil {
		s.Log(err)
	}
	if out, err := s.Lab.Exec(ctx, s.Servers[0].Name, "busybox", "top", "-b", "-n", "1"); err == nil {
		s.Logf("the machine of all servers:\n%s", out.Stdout)
	}
	for _, server := range s.Servers {
		out, err := s.Lab.ExecProgram(ctx, lab.Program{Host: server.Name, Timeout: time.Minute, Args: []string{
			"tar", "-c", "-z", "-h", "-f", "-", "-C", node.OnServer("/var/log"), ".",
		}})
		if err != nil {
			s.Log(err)
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, server.Name+"-logs.tar.gz"), out.Stdout, 0o600); err != nil {
			s.Log(err)
		}
	}
}
