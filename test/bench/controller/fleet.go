package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Limits that the figures must keep.
const (
	maxInitCalls    = 3
	maxJoinWrites   = 0
	maxSteadyCalls  = 2 // a minute, of any operation
	maxResident     = 200
	maxServiceCalls = 8
	maxSharedWrites = 0
	maxOverhead     = 2 * time.Second
)

// Room is how many Services find room in shared blocks on a network: ten blocks, one of them the nodes' own, and
// thirteen usable addresses in a /28.
const Room = 9 * 13

// Fleet defines how large a fleet is and how long it is watched.
type Fleet struct {
	// Nodes that register at once.
	Nodes int
	// Services that share blocks, more than the network has room for.
	Services int
	// Published is how many of the Services find room.
	Published int
	// Settle is how long the fleet may take after everything is published, before Steady is measured.
	Settle, Steady time.Duration
	// Within bounds each wait.
	Within time.Duration
}

// MeasureFleet measures many Nodes that register at once, one that joins later, many Services, and then that
// nothing happens. Logs go to dir, remarks to out.
func MeasureFleet(ctx context.Context, dir string, out io.Writer, f Fleet, specs *pnapsim.Specs) (_ []Figure,
	err error) {
	h, err := start(ctx, dir, setting{servers: f.Nodes + 1, latency: &pnapsim.Latency{}, shared: true, size: "/28",
		specs: specs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	measures := []func(context.Context, io.Writer, Fleet) ([]Figure, error){h.initialise, h.join, h.fill, h.idle}
	var figures []Figure
	for _, measure := range measures {
		more, err := measure(ctx, out, f)
		figures = append(figures, more...)
		if err != nil {
			return figures, err
		}
	}
	return figures, h.broken()
}

func (h *harness) initialise(ctx context.Context, _ io.Writer, f Fleet) ([]Figure, error) {
	mark, begin := h.mark(), time.Now()
	if err := h.register(ctx, 0, f.Nodes); err != nil {
		return nil, fmt.Errorf("register %d Nodes: %w", f.Nodes, err)
	}
	if err := h.initialised(ctx, f.Nodes, f.Within); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	made := h.since(mark).ofServers()
	return []Figure{
		limited(fmt.Sprintf("init_%d_nodes_cloud_calls", f.Nodes), float64(len(made)), "calls", maxInitCalls),
		reported(fmt.Sprintf("init_%d_nodes_took", f.Nodes), took.Seconds(), "s"),
	}, nil
}

// join has one more Node register.
func (h *harness) join(ctx context.Context, out io.Writer, f Fleet) ([]Figure, error) {
	mark := h.mark()
	if err := h.register(ctx, f.Nodes, 1); err != nil {
		return nil, fmt.Errorf("register one more Node: %w", err)
	}
	if err := h.initialised(ctx, f.Nodes+1, f.Within); err != nil {
		return nil, err
	}
	made := h.since(mark).writes()
	_, _ = fmt.Fprint(out, made)
	return []Figure{limited("join_node_cloud_writes", float64(len(made)), "calls", maxJoinWrites)}, nil
}

// fill creates the Services and waits until as many of them are published as the network has room for.
func (h *harness) fill(ctx context.Context, _ io.Writer, f Fleet) ([]Figure, error) {
	if f.Services == 0 {
		return nil, nil
	}
	begin := time.Now()
	if err := h.createServices(ctx, f.Services); err != nil {
		return nil, fmt.Errorf("create %d Services: %w", f.Services, err)
	}
	err := h.eventually(ctx, time.Second, f.Within, func(ctx context.Context) error {
		published, err := h.published(ctx)
		if err == nil && published != f.Published {
			err = fmt.Errorf("%d of %d Services are published", published, f.Published)
		}
		return err
	})
	name := fmt.Sprintf("publish_%d_services_took", f.Published)
	return []Figure{reported(name, time.Since(begin).Seconds(), "s")}, err
}

// idle watches how nothing happens.
func (h *harness) idle(ctx context.Context, out io.Writer, f Fleet) ([]Figure, error) {
	if err := command.Pause(ctx, f.Settle); err != nil {
		return nil, err
	}
	mark := h.mark()
	if err := command.Pause(ctx, f.Steady); err != nil {
		return nil, err
	}
	made := h.since(mark).api()
	operation, perMinute := made.busiest()
	_, _ = fmt.Fprintf(out, "busiest operation of the steady state: %s\n", operation)
	if perMinute > maxSteadyCalls {
		_, _ = fmt.Fprint(out, made)
	}
	peak, err := resident(h.controller.PID())
	return []Figure{
		limited("steady_cloud_calls_per_minute", float64(perMinute), "calls/min", maxSteadyCalls),
		reported("steady_cloud_writes", float64(len(made.writes())), "calls"),
		limited(fmt.Sprintf("controller_rss_%d_nodes", f.Nodes), peak, "MiB", maxResident),
	}, errors.Join(err, h.alive())
}
