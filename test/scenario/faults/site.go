//go:build linux

package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
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
