//go:build linux

// Command faults makes faults on real servers of the lab and prints a table of what was found, and when:
//
//	faults [--only NAME,…] [--servers 4] [--rest 12s] [--logs DIR]
//
// It fails when a fault is not found as the first cause, or too late.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/faults"
)

func main() { command.Main(run) }

func run(ctx context.Context) (err error) {
	only := flag.String("only", "", "names of faults, or parts of them, separated by commas; empty makes all")
	servers := flag.Int("servers", 4, "servers that have faults at the same time, 2 to 5")
	rest := flag.Duration("rest", 12*time.Second, "pause of a server between two faults")
	logs := flag.String("logs", "", "directory that keeps the logs; empty keeps none")
	flag.Parse()
	chosen := choose(faults.All(), *only)
	if len(chosen) == 0 {
		return fmt.Errorf("no fault is called like %q", *only)
	}
	dir, remove, err := command.LogDir(*logs)
	if err != nil {
		return fmt.Errorf("directory for logs: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	results, err := faults.Run(ctx, faults.Options{Out: os.Stdout, Dir: dir, Servers: *servers, Faults: chosen,
		Rest: *rest})
	faults.Report(os.Stdout, chosen, results)
	if err == nil {
		err = faults.Missed(results)
	}
	if *only == "" {
		err = errors.Join(err, faults.Late(results))
	}
	return err
}

// choose returns the faults whose names hold one of the parts.
func choose(all []faults.Fault, parts string) []faults.Fault {
	return slices.DeleteFunc(slices.Clone(all), func(f faults.Fault) bool {
		return !slices.ContainsFunc(strings.Split(parts, ","),
			func(part string) bool { return strings.Contains(f.Name, part) })
	})
}
