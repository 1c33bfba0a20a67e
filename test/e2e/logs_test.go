//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/e2e/node"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/lab"
)

// keepLogs copies what containerd, kubelet and all containers have written to the test's artifacts. What cannot be had is
// told in its place.
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
