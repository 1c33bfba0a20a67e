//go:build linux

package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo/terminal"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
)

// The recordings: a Service gets its address, and a diagnosis explains a broken VLAN.
const (
	RecordingService  = "service"
	RecordingDiagnose = "diagnose"
)

// The widths of their terminals.
const (
	serviceColumns  = 120
	diagnoseColumns = 120
)

// recordService records what kubectl says about the Service.
func (s *story) recordService(ctx context.Context, verb string) error {
	if s.options.Record == nil {
		return nil
	}
	words := []string{verb, "service", cluster.Service}
	out, err := s.printed(ctx, words...)
	if err != nil {
		return err
	}
	s.options.Record(RecordingService,
		terminal.Command{Prompt: "$", Typed: "kubectl " + strings.Join(words, " "), Output: out})
	return nil
}

// recordDiagnosis records what the agent says about a broken server on a terminal.
func (s *story) recordDiagnosis(ctx context.Context, server string) error {
	if s.options.Record == nil {
		return nil
	}
	out, err := s.DiagnoseOnTerminal(ctx, server, diagnoseColumns)
	if err != nil {
		return fmt.Errorf("run agent diagnose on a terminal of %s: %w", server, err)
	}
	if out.Code != 1 {
		return fmt.Errorf("agent diagnose on a terminal of %s ended with exit code %d, want 1: %s%s", server, out.Code,
			out.Stdout, out.Stderr)
	}
	s.options.Record(RecordingDiagnose,
		terminal.Command{Prompt: server + "#", Typed: "phoenixnap-agent diagnose", Output: string(out.Stdout)})
	return nil
}

// Screens are the terminals of the recordings, on which nothing was run yet.
func Screens() map[string]*terminal.Screen {
	return map[string]*terminal.Screen{
		RecordingService: {
			Title: "A Service gets its address",
			Description: "kubectl get service shows a Service whose external IP is pending. Then kubectl describe " +
				"service shows its address, and the events of the IP block: bought, assigned, published.",
			Columns: serviceColumns,
		},
		RecordingDiagnose: {
			Title: "The agent explains a broken VLAN",
			Description: "phoenixnap-agent diagnose on a server whose VLAN interface is down: which checks pass, " +
				"which fail, why, and the commands that fix it.",
			Columns: diagnoseColumns,
		},
	}
}
