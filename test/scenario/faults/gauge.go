//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
)

const (
	// metricsAddress is where the agents serve their metrics, on each server by itself.
	metricsAddress = "127.0.0.1:9808"
	// awaitFile is the program that waits for a metric, in the lab's directory.
	awaitFile = "await"
	// grace is what starting a program may take beyond the time that it is given.
	grace = 30 * time.Second
)

// awaitMetric waits on the server until a check's gauge has a level; of all checks where no ID is given.
func (s *site) awaitMetric(ctx context.Context, id check.ID, level int, within time.Duration) error {
	args := []string{
		lab.Path(awaitFile), "--url", "http://" + metricsAddress + "/metrics", "--metric", "phoenixnap_agent_check",
		"--value", strconv.Itoa(level), "--within", within.String(),
	}
	if id != "" {
		args = append(args, "--label", fmt.Sprintf("id=%q", id))
	}
	out, err := s.cluster.Lab.ExecProgram(ctx, lab.Program{Host: s.server.Name, Args: args, Timeout: within + grace})
	if err != nil {
		return fmt.Errorf("metric of %s on %s: %w", id, s.server.Name, err)
	}
	if out.Code != 0 {
		return fmt.Errorf("metrics on %s: %s", s.server.Name, strings.TrimSpace(string(out.Stderr)))
	}
	return nil
}

// diagnose runs `agent diagnose` on the server and returns its finding to look at first; none when all is well.
func (s *site) diagnose(ctx context.Context, flags ...string) (check.Finding, error) {
	out, err := s.cluster.Diagnose(ctx, s.server.Name, append([]string{"--output", "json"}, flags...)...)
	if err != nil {
		return check.Finding{}, fmt.Errorf("diagnose on %s: %w", s.server.Name, err)
	}
	return firstCause(out.Stdout, out.Stderr)
}

func firstCause(document, complaint []byte) (check.Finding, error) {
	var d diagnose.Document
	if err := json.Unmarshal(document, &d); err != nil {
		return check.Finding{}, fmt.Errorf("read the diagnosis: %w: %s", err, complaint)
	}
	for _, f := range d.Findings {
		if f.ID == d.Result.FirstCause {
			return f, nil
		}
	}
	return check.Finding{}, nil
}

// describe says in a line what a finding is.
func describe(f check.Finding) string {
	if f.ID == "" {
		return "all is well"
	}
	return fmt.Sprintf("%s %s %s: %s", f.ID, f.Status, f.Reason, f.Cause)
}
