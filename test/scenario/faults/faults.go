//go:build linux

// Package faults breaks servers of the lab in every way that has a finding, and measures how long it takes until the
// finding is reported, and until its end is.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Options of a run.
type Options struct {
	// Out is where progress and table are written.
	Out io.Writer
	// Dir keeps logs and kubeconfigs.
	Dir string
	// Servers is how many servers have faults at the same time, at least 2: each has a neighbour.
	Servers int
	// Faults are those to be made.
	Faults []Fault
	// Rest is the pause of a server between two faults. The agent writes its Node ten times in a row and then once in 5
	// s: a server that breaks without a rest measures that.
	Rest time.Duration
}

// awaitProgram is the package of the program that waits for a metric on a server.
const awaitProgram = "./test/scenario/faults/cmd/await"

// Run makes every fault, each on one server, and returns what came of them. An error means that the lab did not work.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	if err := validate(o.Faults); err != nil {
		return nil, err
	}
	await, err := tools.Product(ctx, awaitProgram)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", awaitProgram, err)
	}
	c, err := cluster.New(cluster.Options{
		Dir: o.Dir, Servers: o.Servers, Scale: 100, Files: map[string]string{awaitFile: await},
		Programs: []string{"ip", "bridge", "tc"}, AgentFlags: []string{"--metrics-bind-address", metricsAddress},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, c.Stop())
	}()
	if err := start(ctx, c); err != nil {
		return nil, err
	}
	w := newWatcher(c.Kube)
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		w.stop()
	}()
	return newCampaign(c, w, o).run(ctx)
}

// start brings the cluster to the state in which its Nodes are known and watched by agents.
func start(ctx context.Context, c *cluster.Cluster) error {
	pods := func(ctx context.Context) error { return routePods(ctx, c) }
	for _, step := range []func(context.Context) error{
		c.StartAccount, c.StartControlPlane, c.StartServers, pods, c.RegisterNodes, c.StartController, c.StartAgents,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// routePods gives every server a route to its pod, as network plugins do that have no bridge.
func routePods(ctx context.Context, c *cluster.Cluster) error {
	for _, server := range c.Servers {
		s := &site{cluster: c, server: server}
		if err := s.script(ctx, server.Name, "ip route add $POD/32 dev pod0"); err != nil {
			return fmt.Errorf("route to the pod: %w", err)
		}
	}
	return nil
}

// campaign makes the faults: first those that all servers notice, one after another, then the others on all servers at
// the same time.
type campaign struct {
	trials    []*trial
	out       io.Writer
	rest      time.Duration
	exclusive []Fault
	others    []Fault

	mu      sync.Mutex
	results []Result
}

func newCampaign(c *cluster.Cluster, w *watcher, o Options) *campaign {
	k := &campaign{out: o.Out, rest: o.Rest}
	for i, server := range c.Servers {
		neighbour := c.Servers[(i+1)%len(c.Servers)]
		k.trials = append(k.trials, &trial{site: &site{cluster: c, server: server, neighbour: neighbour}, watcher: w})
	}
	for _, f := range o.Faults {
		if f.Exclusive {
			k.exclusive = append(k.exclusive, f)
		} else {
			k.others = append(k.others, f)
		}
	}
	return k
}

func (k *campaign) run(ctx context.Context) ([]Result, error) {
	if err := k.allHealthy(ctx); err != nil {
		return nil, fmt.Errorf("before any fault: %w", err)
	}
	for i, f := range k.exclusive {
		k.note(k.trials[i%len(k.trials)].run(ctx, f))
		if err := k.allHealthy(ctx); err != nil {
			return k.results, fmt.Errorf("after %q: %w", f.Name, err)
		}
	}
	queue := make(chan Fault, len(k.others))
	for _, f := range longestFirst(k.others) {
		queue <- f
	}
	close(queue)
	var lanes sync.WaitGroup
	for _, t := range k.trials {
		lanes.Go(func() { k.lane(ctx, t, queue) })
	}
	lanes.Wait()
	return k.results, context.Cause(ctx)
}

// lane makes faults on one server until none is left.
func (k *campaign) lane(ctx context.Context, t *trial, queue <-chan Fault) {
	for f := range queue {
		k.note(t.run(ctx, f))
		select {
		case <-ctx.Done():
			return
		case <-time.After(k.rest):
		}
	}
}

// longestFirst puts faults that take long before those that are reported at once, so that no server ends long after the
// rest.
func longestFirst(all []Fault) []Fault {
	weight := func(f Fault) int {
		switch {
		case f.Slow:
			return 0
		case !f.Event:
			return 1
		default:
			return 2
		}
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Fault) int { return weight(a) - weight(b) })
	return sorted
}

// allHealthy waits until no server has anything to say.
func (k *campaign) allHealthy(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range k.trials {
		group.Go(func() error { return t.healthy(ctx, slowPatience) })
	}
	return group.Wait()
}

// note keeps a result and prints it.
func (k *campaign) note(r Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.results = append(k.results, r)
	fmt.Fprintln(k.out, line(r))
}
