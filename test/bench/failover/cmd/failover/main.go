//go:build linux

// Command failover measures for how long a client beyond the gateway is without an answer when the node that announces
// an address fails, with the agents' announcer and with kube-vip, and prints one figure a line:
//
//	failover [--agent 20] [--kube-vip 5] [--fault node_dead] [--nodes 3] [--logs DIR]
//
// Nodes are network namespaces of this machine, on its own kernel, because an emulated one has no times to be compared.
// A veth stands for the VLAN interface, where a kernel has 802.1Q or not; what stands for kube-proxy is one rule of
// nftables and an echo behind it. Announcers, API server, ARP and the way of packets are real. It takes root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/failover"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == failover.NodeCommand {
		return failover.RunNode(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == failover.RespondCommand {
		return failover.RunResponder(ctx)
	}
	o := failover.Options{Out: os.Stdout, Log: os.Stderr}
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.IntVar(&o.Agent, "agent", 20, "how often each fault is made with the agents' announcer")
	flags.IntVar(&o.KubeVIP, "kube-vip", 5, "how often each fault is made with kube-vip, with each of its timers")
	names := failover.FaultNames()
	flags.StringVar(&o.Fault, "fault", "", "the only fault to be made: "+strings.Join(names, ", "))
	flags.IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	logs := flags.String("logs", "", "directory that keeps the logs; empty keeps none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Fault != "" && !slices.Contains(names, o.Fault) {
		return fmt.Errorf("--fault %s: give one of %s", o.Fault, strings.Join(names, ", "))
	}
	var remove func() error
	if o.Dir, remove, err = command.LogDir(*logs); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	rate, err := failover.MeasureRate(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("figure responder_rate %.0f requests_per_second\n", rate.PerSecond)
	fmt.Printf("figure responder_rate_per_core_second %.0f requests\n", rate.PerCoreSecond)
	return failover.Measure(ctx, o)
}
