//go:build linux

package faults

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Fault is something that goes wrong on a server or in its network, and what must be found then. Without a trait it
// turns the condition VLANReady of the Node: its reason, and the ID that its message begins with, are the first cause.
type Fault struct {
	Name string
	// ID and Reason are the first cause.
	ID     check.ID
	Reason string
	// Make and Repair are actions in their order: what is done, and with which argument.
	Make, Repair []map[string]string

	// Warns and Fails give the status in the agent's metric phoenixnap_agent_check, for what does not turn the
	// condition; the first cause is that of `agent diagnose` right after.
	Warns, Fails bool
	// Silent reports that only `agent diagnose` finds it: the running agent cannot know or report it.
	Silent bool
	// Described reports that `agent diagnose` needs a description of the network: with the bond the way to the API
	// server is gone, too.
	Described bool
	// Event reports that the kernel notifies the agent of fault and repair; else it polls, or hears from the API
	// server.
	Event bool
	// Slow reports that the controller has to find out first, from phoenixNAP's API.
	Slow bool
	// Exclusive reports that other servers notice, so that no other fault may be there at the same time.
	Exclusive bool
	// Short reports that the fault is part of the short run.
	Short bool
}

//go:embed faults.yaml
var declared []byte

// All are the faults that are made. Their order is that of the layers.
func All() []Fault {
	var all []Fault
	if err := yaml.UnmarshalStrict(declared, &all); err != nil {
		panic(err) // it is part of the program
	}
	return all
}

// channel is where the finding is read.
func (f Fault) channel() string {
	switch {
	case f.Silent:
		return "diagnose"
	case f.Warns || f.Fails:
		return "metric"
	default:
		return "condition"
	}
}

// status is what the metric shows.
func (f Fault) status() check.Status {
	if f.Fails {
		return check.Fail
	}
	return check.Warn
}

// flags are those of `agent diagnose`.
func (f Fault) flags() []string {
	if f.Described {
		return []string{"--vlan", "56", "--network", "203.0.113.0/29"}
	}
	return nil
}

// actions change something at the site of a fault, by their names in the list of faults.
var actions = map[string]func(ctx context.Context, s *site, argument string) error{
	// Scripts run as the administrator of a host would run them.
	"server":    func(ctx context.Context, s *site, text string) error { return s.script(ctx, s.server.Name, text) },
	"neighbour": func(ctx context.Context, s *site, text string) error { return s.script(ctx, s.neighbour.Name, text) },
	"gateway":   func(ctx context.Context, s *site, text string) error { return s.script(ctx, lab.Gateway, text) },
	"switch":    func(ctx context.Context, s *site, text string) error { return s.script(ctx, lab.Switch, text) },
	// The VLAN interface breaks in one of the lab's ways; then the user's configuration is carried out again.
	"break": func(ctx context.Context, s *site, way string) error {
		return s.cluster.Lab.Break(ctx, s.server.Name, lab.Fault(way))
	},
	"restore": func(ctx context.Context, s *site, _ string) error { return s.cluster.Lab.Repair(ctx, s.server.Name) },
	// The VLAN ID that the controller has published on the Node is overwritten.
	"annotate": func(ctx context.Context, s *site, value string) error {
		node, err := s.cluster.Kube.CoreV1().Nodes().Get(ctx, s.server.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		vlan := regexp.MustCompile(`"vlan":[^,]*`)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, contract.NodePublicNetworks,
			vlan.ReplaceAllString(node.Annotations[contract.NodePublicNetworks], `"vlan":`+value))
		_, err = s.cluster.Kube.CoreV1().Nodes().Patch(ctx, s.server.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		return err
	},
	// The server gets what cloud-init leaves on one that was installed from the image of another one.
	"instance-data": func(ctx context.Context, s *site, path string) error {
		data := fmt.Appendf(nil, `{"v1":{"instance_id":%q,"local_hostname":%q}}`, s.neighbour.ID, s.server.Name)
		return s.cluster.Lab.WriteHostFile(ctx, s.server.Name, path, data, 0o644)
	},
	// The membership in the network changes without notice, as the portal's user can change it.
	"portal": func(ctx context.Context, s *site, kind string) error {
		return s.cluster.Sim.Edit(ctx, pnapsim.Edit{Kind: kind, Server: s.server.ID, Network: cluster.NetworkID,
			IPs: []string{s.server.Public.Addr().String()}})
	},
}

// do carries out actions in their order, as far as they succeed.
func (s *site) do(ctx context.Context, steps []map[string]string) error {
	for _, step := range steps {
		for name, argument := range step {
			if err := actions[name](ctx, s, argument); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// validate holds all against the catalogue of checks, and their actions against those that are possible.
func validate(all []Fault) error {
	var errs []error
	for _, f := range all {
		i := slices.IndexFunc(check.Catalogue(), func(c check.Check) bool { return c.ID == f.ID })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: the catalogue has no check %s", f.Name, f.ID))
		} else if reasons := check.Catalogue()[i].Reasons; !slices.Contains(reasons, f.Reason) {
			errs = append(errs, fmt.Errorf("%s: %s has no reason %s, but %v", f.Name, f.ID, f.Reason, reasons))
		}
		for _, step := range slices.Concat(f.Make, f.Repair) {
			for name := range step {
				if actions[name] == nil {
					errs = append(errs, fmt.Errorf("%s: there is no action %q", f.Name, name))
				}
			}
		}
	}
	return errors.Join(errs...)
}
