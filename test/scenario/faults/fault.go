//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// Channel is where a finding is read.
type Channel string

const (
	// ByCondition is the condition VLANReady of the Node: its reason, and the ID that its message begins with.
	ByCondition Channel = "condition"
	// ByMetric is the agent's metric phoenixnap_agent_check, for what does not turn the condition; the first cause is
	// that of `agent diagnose` right after.
	ByMetric Channel = "metric"
	// ByDiagnosis is only `agent diagnose`, for what the running agent cannot know or report.
	ByDiagnosis Channel = "diagnose"
)

// Fault is something that goes wrong on a server or in its network, and what must be found then.
type Fault struct {
	Name string
	// ID and Reason are the first cause.
	ID     check.ID
	Reason string
	// Told is where the finding is reported.
	Told Channel
	// Status that the metric gives: check.Warn or check.Fail. Only for ByMetric.
	Status check.Status
	// Flags of `agent diagnose`, where it needs more than its own.
	Flags []string
	// Event reports that the kernel notifies the agent of fault and repair; else it polls, or hears from the API
	// server.
	Event bool
	// Slow reports that the controller has to find out first, from phoenixNAP's API.
	Slow bool
	// Alone reports that other servers notice, so that no other fault may be there at the same time.
	Alone bool
	// Short reports that the fault is part of the short run.
	Short bool

	make, mend action
}

// action changes something at the site of a fault.
type action func(ctx context.Context, s *site) error

// then runs actions one after the other, as far as they succeed.
func then(actions ...action) action {
	return func(ctx context.Context, s *site) error {
		for _, a := range actions {
			if err := a(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// here runs a shell script on the server, as its administrator would.
func here(script string) action {
	return func(ctx context.Context, s *site) error { return s.script(ctx, s.server.Name, script) }
}

// nextDoor runs a script on another server of the network.
func nextDoor(script string) action {
	return func(ctx context.Context, s *site) error { return s.script(ctx, s.neighbour.Name, script) }
}

// atGateway runs a script on the provider's gateway, onSwitch on its switch.
func atGateway(script string) action {
	return func(ctx context.Context, s *site) error { return s.script(ctx, lab.Gateway, script) }
}

func onSwitch(script string) action {
	return func(ctx context.Context, s *site) error { return s.script(ctx, lab.Switch, script) }
}

// breakVLAN breaks the VLAN interface in one of the lab's ways; restore carries out the user's configuration again.
func breakVLAN(way lab.Fault) action {
	return func(ctx context.Context, s *site) error { return s.cluster.Lab.Break(ctx, s.server.Name, way) }
}

func restore(ctx context.Context, s *site) error { return s.cluster.Lab.Repair(ctx, s.server.Name) }

// portal changes something without notice, as the portal's user can.
func portal(edit func(s *site) pnapsim.Edit) action {
	return func(ctx context.Context, s *site) error { return s.cluster.Sim.Edit(ctx, edit(s)) }
}

// All are the faults that are made. Their order is that of the layers.
func All() []Fault {
	var all []Fault
	for _, group := range [][]Fault{publishedFaults(), linkFaults(), bondFaults(), addressFaults(), networkFaults(),
		kernelFaults(), routeFaults()} {
		all = append(all, group...)
	}
	return all
}

// valid holds a fault against the catalogue of checks.
func (f Fault) valid() error {
	for _, c := range check.Catalogue() {
		if c.ID != f.ID {
			continue
		}
		for _, reason := range c.Reasons {
			if reason == f.Reason {
				return nil
			}
		}
		return fmt.Errorf("%s: %s has no reason %s, but %v", f.Name, f.ID, f.Reason, c.Reasons)
	}
	return fmt.Errorf("%s: the catalogue has no check %s", f.Name, f.ID)
}

// validate holds all against the catalogue.
func validate(all []Fault) error {
	errs := make([]error, len(all))
	for i, f := range all {
		errs[i] = f.valid()
	}
	return errors.Join(errs...)
}
