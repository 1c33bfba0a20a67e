//go:build linux

package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
)

const (
	// evidenceLimit is how long gathering evidence may take.
	evidenceLimit = 30 * time.Second
	// tail is how much of a log is shown.
	tail = 3000
)

// evidence shows what there is to see when a step has failed. It continues when a part is missing: the cluster may
// be in any state.
func (s *story) evidence(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, evidenceLimit)
	defer cancel()
	fmt.Fprintf(s.out, "\nEvidence\n")
	if s.Kube != nil {
		for _, args := range [][]string{
			{"describe", "nodes"},
			{"get", "service", cluster.Service, "-o", "yaml"},
			{"get", "events", "-A", "--sort-by=.lastTimestamp"},
			{"get", "leases", "-A"},
		} {
			s.say("kubectl %v", args)
			if err := s.kubectl(ctx, args...); err != nil {
				s.say("%v", err)
			}
		}
	}
	if s.Lab != nil {
		s.labLogs(ctx)
	}
	logs, err := filepath.Glob(filepath.Join(s.options.Dir, "*.log"))
	if err != nil {
		s.say("%v", err)
	}
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			s.say("%v", err)
			continue
		}
		s.showLog(path, raw)
	}
}

func (s *story) labLogs(ctx context.Context) {
	processes, err := s.Lab.Processes(ctx, "")
	if err != nil {
		s.say("%v", err)
	}
	shown := map[string]bool{}
	for _, p := range processes {
		if shown[p.Name] {
			continue
		}
		shown[p.Name] = true
		raw, err := s.Lab.Log(ctx, p.Name)
		if err != nil {
			s.say("%v", err)
			continue
		}
		s.showLog(fmt.Sprintf("%s on %s", p.Name, p.Host), raw)
	}
}

// showLog shows the end of a log.
func (s *story) showLog(name string, raw []byte) {
	if len(raw) > tail {
		raw = raw[len(raw)-tail:]
	}
	s.say("end of the log of %s:", name)
	s.quote(string(raw))
}
