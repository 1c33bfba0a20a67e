//go:build linux

// Package failover measures for how long a client beyond the gateway is without an answer when the node that announces
// an address fails, with the agents' announcer and with kube-vip.
package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/forward"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Options define what to measure.
type Options struct {
	// Agent and KubeVIP are how often each fault is made for the agents' announcer and for kube-vip; 0 leaves it out.
	Agent, KubeVIP int
	// Fault is the only one to be made; empty: all.
	Fault string
	// Nodes is the number of nodes.
	Nodes int
	// Dir keeps logs and kubeconfigs.
	Dir string
	// Out receives figures, Log what happens.
	Out, Log io.Writer
}

// Measure makes every fault again and again and prints the figures.
func Measure(ctx context.Context, o Options) (err error) {
	if err := tools.Packages(ctx, "nft", "ip"); err != nil {
		return err
	}
	s, err := newSegment(o.Nodes)
	if err != nil {
		return err
	}
	defer s.close()
	c, err := newCluster(ctx, o.Dir, o.Nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.plane.Stop()) }()
	stop, err := s.serve(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	if err := c.kubelets.register(ctx); err != nil {
		return err
	}
	renewing, end := context.WithCancel(ctx)
	defer end()
	go c.kubelets.run(renewing)
	b := &bench{segment: s, out: o.Log}
	if b.prober, err = newProber(ctx, s.client); err != nil {
		return err
	}
	defer b.prober.stop()
	if b.witness, err = newWitness(ctx, s.witness); err != nil {
		return err
	}
	defer b.witness.stop()
	return b.all(ctx, c, o)
}

// serve has every node answer, and reach the API server by a way that no fault touches, as by the private network.
func (s *segment) serve(ctx context.Context, c *cluster) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var stops []func()
	stop = func() {
		cancel()
		for _, each := range stops {
			each()
		}
		group.Wait()
	}
	for i, node := range s.nodes {
		ended, err := serveEcho(ctx, node, i)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, ended)
		if ended, err = serveTCP(ctx, node, i); err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, ended)
		if err := s.reach(ctx, node, c, &group); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

func (s *segment) reach(ctx context.Context, node *space.Space, c *cluster, group *sync.WaitGroup) error {
	listener, err := node.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", apiPort))
	if err != nil {
		return fmt.Errorf("host %s: a way to the API server: %w", node.Name, err)
	}
	group.Go(func() {
		// It ends with its context.
		_ = forward.Forwarder{Listener: listener, Target: fmt.Sprintf("127.0.0.1:%d", c.plane.Port())}.Run(ctx)
	})
	return nil
}

// all makes every fault with every candidate.
func (b *bench) all(ctx context.Context, c *cluster, o Options) error {
	medians := map[string]float64{}
	run := func(n candidate, times int) error {
		f := &fleet{candidate: n, nodes: b.segment.nodes, dir: o.Dir, kubelets: c.kubelets}
		for _, fa := range faults() {
			if o.Fault != "" && fa.name != o.Fault || times == 0 || fa.stays && n.complete == nil {
				continue
			}
			results, err := b.repeat(ctx, f, fa, fa.times(times))
			if err != nil {
				return err
			}
			lines, median := figures(n.name, fa, results)
			for _, line := range lines {
				fmt.Fprintln(o.Out, line)
			}
			medians[n.name+" "+fa.name] = median
		}
		return nil
	}
	agent, err := c.agent(ctx)
	if err != nil {
		return err
	}
	if err := run(agent, o.Agent); err != nil {
		return err
	}
	for _, t := range kubeVIPTimers() {
		n, err := c.kubeVIP(ctx, b.segment, t)
		if err != nil {
			return err
		}
		if err := run(n, o.KubeVIP); err != nil {
			return err
		}
	}
	for _, fa := range faults() {
		for suffix, name := range map[string]string{"": "kube_vip", "_fast": "kube_vip_fast"} {
			ours := medians["agent "+fa.name]
			theirs := medians[name+" "+fa.name]
			if fa.name == "node_dead" && ours > 0 && theirs > 0 {
				fmt.Fprintf(o.Out, "figure failover_ratio%s_%s %.1f x\n", suffix, fa.name, theirs/ours)
			}
		}
	}
	return nil
}
