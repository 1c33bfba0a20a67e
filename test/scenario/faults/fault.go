//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// Trait is a set of what distinguishes a fault. Without one the fault turns the condition VLANReady of the Node: its
// reason, and the ID that its message begins with, are the first cause.
type Trait int

// The traits.
const (
	// Warns and Fails give the status in the agent's metric phoenixnap_agent_check, for what does not turn the
	// condition; the first cause is that of `agent diagnose` right after.
	Warns Trait = 1 << iota
	Fails
	// Silent reports that only `agent diagnose` finds it: the running agent cannot know or report it.
	Silent
	// Described reports that `agent diagnose` needs a description of the network: with the bond the way to the API
	// server is gone, too.
	Described
	// Event reports that the kernel notifies the agent of fault and repair; else it polls, or hears from the API
	// server.
	Event
	// Slow reports that the controller has to find out first, from phoenixNAP's API.
	Slow
	// Exclusive reports that other servers notice, so that no other fault may be there at the same time.
	Exclusive
	// Short reports that the fault is part of the short run.
	Short
)

// Fault is something that goes wrong on a server or in its network, and what must be found then.
type Fault struct {
	Name string
	// ID and Reason are the first cause.
	ID     check.ID
	Reason string
	Traits Trait

	make, repair action
}

// has reports whether the fault has one of the traits.
func (f Fault) has(t Trait) bool { return f.Traits&t != 0 }

// channel is where the finding is read.
func (f Fault) channel() string {
	switch {
	case f.has(Silent):
		return "diagnose"
	case f.has(Warns | Fails):
		return "metric"
	default:
		return "condition"
	}
}

// status is what the metric shows.
func (f Fault) status() check.Status {
	if f.has(Fails) {
		return check.Fail
	}
	return check.Warn
}

// flags are those of `agent diagnose`.
func (f Fault) flags() []string {
	if f.has(Described) {
		return []string{"--vlan", "56", "--network", "203.0.113.0/29"}
	}
	return nil
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

// validate holds all against the catalogue of checks.
func validate(all []Fault) error {
	var errs []error
	for _, f := range all {
		i := slices.IndexFunc(check.Catalogue(), func(c check.Check) bool { return c.ID == f.ID })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: the catalogue has no check %s", f.Name, f.ID))
		} else if reasons := check.Catalogue()[i].Reasons; !slices.Contains(reasons, f.Reason) {
			errs = append(errs, fmt.Errorf("%s: %s has no reason %s, but %v", f.Name, f.ID, f.Reason, reasons))
		}
	}
	return errors.Join(errs...)
}
