//go:build linux

// Command agentbench prints what an idle agent costs, one figure a line, and fails when a figure exceeds its limit:
//
//	agentbench [--nodes 1000] [--services 300] [--pods 200] [--settle 30s] [--steady 2m] [--logs DIR]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/agent"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

func main() { command.Main(run) }

func run(ctx context.Context) (err error) {
	o := agent.Options{Out: os.Stderr}
	flag.IntVar(&o.Nodes, "nodes", 1000, "Nodes of the cluster")
	flag.IntVar(&o.Services, "services", 300, "Services with an address")
	flag.IntVar(&o.Pods, "pods", 200, "pod interfaces on the node")
	flag.DurationVar(&o.Settle, "settle", 30*time.Second, "rest before the measurement")
	flag.DurationVar(&o.Steady, "steady", 2*time.Minute, "how long the agent is watched")
	flag.StringVar(&o.Dir, "logs", "", "directory that keeps the logs; empty keeps none")
	inPlace := flag.Bool("in-place", false,
		"measure on plain Ethernet; the process has a network namespace to itself (set by the program itself)")
	flag.Parse()
	var remove func() error
	if o.Dir, remove, err = command.LogDir(o.Dir); err != nil {
		return fmt.Errorf("directory for logs: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	if *inPlace {
		figures, err := agent.MeasureInPlace(ctx, o)
		return errors.Join(err, controller.Report(os.Stdout, figures))
	}
	figures, inMachine, err := agent.Measure(ctx, o)
	err = errors.Join(err, controller.Report(os.Stdout, figures))
	if inMachine {
		err = errors.Join(err, again(ctx))
	}
	return err
}

// again measures the processor once more, outside of the emulated machine.
func again(ctx context.Context) error {
	cmd, err := kernel.Rerun(ctx, append([]string{"--in-place"}, os.Args[1:]...)...)
	if err != nil {
		return fmt.Errorf("measure in place: %w", err)
	}
	p, err := subprocess.Start(cmd)
	if err != nil {
		return fmt.Errorf("measure in place: %w", err)
	}
	return p.Wait()
}
