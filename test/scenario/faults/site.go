//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// site is where a fault is made: a server, and another one in the same network.
type site struct {
	cluster           *cluster.Cluster
	server, neighbour cluster.Server
}

// prelude makes the shell take the real iproute2: busybox's shell would prefer its own, which knows less.
const prelude = "set -e; ip() { /usr/sbin/ip \"$@\"; }; bridge() { /usr/sbin/bridge \"$@\"; }; tc() { /usr/sbin/tc " +
	"\"$@\"; }\n"

// script runs a shell script on a host of the lab. It finds the server's values in variables.
func (s *site) script(ctx context.Context, host, script string) error {
	out, err := s.cluster.Lab.ExecProgram(ctx, lab.Program{
		Host: host, Args: []string{"sh", "-c", prelude + script}, Env: s.environment(),
	})
	if err != nil {
		return fmt.Errorf("on %s: %w", host, err)
	}
	if out.Code != 0 {
		return fmt.Errorf("on %s: exit code %d: %s", host, out.Code, strings.TrimSpace(string(out.Stderr)))
	}
	return nil
}

// environment are the values of the server, as scripts name them.
func (s *site) environment() []string {
	values := map[string]string{
		"SERVER":  s.server.Name,
		"ADDRESS": s.server.Public.Addr().String(),
		"OWN":     s.server.Public.String(),
		"BLOCK":   s.server.Public.Masked().String(),
		"BITS":    strconv.Itoa(s.server.Public.Bits()),
		"PODS":    s.server.Pods.String(),
		"POD":     s.server.PodAddress().String(),
		"GATEWAY": cluster.Gateway().String(),
		// Another way to the outside world: a router on the private network.
		"ELSEWHERE": cluster.Management().Addr().String(),
		"CONF":      "/proc/sys/net/ipv4/conf/" + cluster.PublicInterface,
	}
	env := make([]string, 0, len(values))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return env
}

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
