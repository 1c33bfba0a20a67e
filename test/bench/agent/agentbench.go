//go:build linux

// Package agent measures what the shipped agent costs on a node that is idle: memory and processor, in a cluster of
// many Nodes and Services and beside many pod interfaces.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
)

// Limits of an idle agent.
const (
	maxResident  = 45  // MiB
	maxAnonymous = 20  // MiB
	maxIdle      = 0.2 // percent of a core
)

// Options define what the agent is measured in.
type Options struct {
	// Dir keeps logs and kubeconfigs.
	Dir string
	// Out is where progress is written.
	Out io.Writer
	// Nodes, Services and Pods of the cluster and the node.
	Nodes, Services, Pods int
	// Settle is the rest before the measurement, Steady how long it lasts.
	Settle, Steady time.Duration
}

// Measure measures the agent on a server of the network lab: with a real VLAN interface, a gateway that answers, and
// another server that announces the addresses of all Services. Where the lab is in an emulated machine, time on the
// processor is that of the emulation, and MeasureInPlace measures that of this machine.
func Measure(ctx context.Context, o Options) (figures []controller.Figure, inMachine bool, err error) {
	c := &setting{Options: o}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.start(ctx); err != nil {
		return nil, false, err
	}
	n, err := startNetwork(ctx, c)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, n.lab.Stop()) }()
	if err := n.startAgent(ctx); err != nil {
		return nil, false, err
	}
	if err := c.awaitReady(ctx); err != nil {
		return nil, n.lab.InMachine, errors.Join(err, n.keepLog(ctx))
	}
	u, err := watch(ctx, o, func(path string) ([]byte, error) { return n.lab.ReadFile(ctx, server, path) }, n.pid)
	if err != nil {
		return nil, n.lab.InMachine, errors.Join(err, n.keepLog(ctx))
	}
	figures = u.figures()
	if n.lab.InMachine {
		for i := range figures {
			if figures[i].Name == idleFigure {
				figures[i].Name = idleFigure + "_emulated"
				figures[i].Limited = false
			}
		}
	}
	return figures, n.lab.InMachine, n.keepLog(ctx)
}

// idleFigure is the share of a core.
const idleFigure = "agent_idle_cpu"

// figures compares the measurements with the limits.
func (u usage) figures() []controller.Figure {
	return []controller.Figure{
		{Name: "agent_rss", Value: u.resident, Unit: "MiB", Limit: maxResident, Limited: true},
		{Name: "agent_rss_anonymous", Value: u.anonymous, Unit: "MiB", Limit: maxAnonymous, Limited: true},
		{Name: idleFigure, Value: u.share, Unit: "%", Limit: maxIdle, Limited: true},
	}
}

func (o Options) say(format string, args ...any) {
	fmt.Fprintf(o.Out, format+"\n", args...)
}
