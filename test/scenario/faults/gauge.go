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

// awaitStatus waits on the server until the metric of a check has a status.
func (s *site) awaitStatus(ctx context.Context, id check.ID, status check.Status, within time.Duration) error {
	labels := fmt.Sprintf("id=%q,.*status=%q", id, strings.ToLower(string(status)))
	return s.awaitMetric(ctx, labels, 1, within)
}

// awaitHealthy waits on the server until no check warns, fails or is unknown.
func (s *site) awaitHealthy(ctx context.Context, within time.Duration) error {
	return s.awaitMetric(ctx, `status="(warn|unknown|fail)"`, 0, within)
}

func (s *site) awaitMetric(ctx context.Context, labels string, value int, within time.Duration) error {
	args := []string{
		lab.Path(awaitFile), "--url", "http://" + metricsAddress + "/metrics", "--metric", "phoenixnap_agent_check",
		"--labels", labels, "--value", strconv.Itoa(value), "--within", within.String(),
	}
	out, err := s.cluster.Lab.ExecProgram(ctx, lab.Program{Host: s.server.Name, Args: args, Timeout: within + grace})
	if err != nil {
		return fmt.Errorf("metric {%s} on %s: %w", labels, s.server.Name, err)
	}
	if out.Code != 0 {
		return fmt.Errorf("metrics on %s: %s", s.server.Name, strings.TrimSpace(string(out.Stderr)))
	}
	return nil
}

// diagnose runs `agent diagnose` on the server and returns its first cause; none when everything is healthy.
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
		return "no finding"
	}
	return fmt.Sprintf("%s %s %s: %s", f.ID, f.Status, f.Reason, f.Cause)
}
