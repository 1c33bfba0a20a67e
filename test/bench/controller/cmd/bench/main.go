// Command bench prints what the controller costs, one figure a line, and fails when a figure exceeds its limit:
//
//	bench [-only fleet,publication,calls] [-nodes 1000] [-services 300] [-steady 3m] [-logs DIR]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

type options struct {
	only  string
	logs  string
	fleet controller.Fleet
	count int
	scale float64
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.only, "only", "publication,calls,fleet", "what to measure, separated by commas")
	flags.StringVar(&o.logs, "logs", "", "directory that keeps the logs; empty keeps none")
	flags.IntVar(&o.fleet.Nodes, "nodes", 1000, "Nodes that register at once")
	flags.IntVar(&o.fleet.Services, "services", 300, "Services in shared blocks; the network has room for fewer")
	flags.DurationVar(&o.fleet.Settle, "settle", time.Minute, "rest before the steady state is watched")
	flags.DurationVar(&o.fleet.Steady, "steady", 3*time.Minute, "how long the steady state is watched")
	flags.DurationVar(&o.fleet.Within, "within", 10*time.Minute, "the longest wait for Nodes and Services of the fleet")
	flags.IntVar(&o.count, "publications", 12, "Services that are created and deleted one after another")
	flags.Float64Var(&o.scale, "scale", 10, "seconds of the account's time in a second while calls are counted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.fleet.Published = min(o.fleet.Services, controller.Room)
	return measureAll(ctx, o)
}

func measureAll(ctx context.Context, o options) (err error) {
	logs, remove, err := command.LogDir(o.logs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	specs, err := pnapsim.LoadSpecs("")
	if err != nil {
		return fmt.Errorf("load the OpenAPI documents: %w", err)
	}
	measures := map[string]func(dir string) ([]controller.Figure, error){
		"publication": func(dir string) ([]controller.Figure, error) {
			return controller.MeasurePublication(ctx, dir, o.count, specs)
		},
		"calls": func(dir string) ([]controller.Figure, error) {
			return controller.MeasureCalls(ctx, dir, os.Stderr, o.scale, specs)
		},
		// A thousand servers in each answer: the documents are left out here, so that the simulator does not slow it
		// down.
		"fleet": func(dir string) ([]controller.Figure, error) {
			return controller.MeasureFleet(ctx, dir, os.Stderr, o.fleet, nil)
		},
	}
	var errs []error
	for name := range strings.SplitSeq(o.only, ",") {
		measure, known := measures[name]
		if !known {
			return fmt.Errorf("nothing to measure is called %q: choose among publication, calls, fleet", name)
		}
		dir := filepath.Join(logs, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		figures, err := measure(dir)
		errs = append(errs, err, controller.Report(os.Stdout, figures))
	}
	return errors.Join(errs...)
}
