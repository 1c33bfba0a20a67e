//go:build linux

// Command localservices prints what an agent with agent:// costs on a node with many Services with
// externalTrafficPolicy Local, one figure a line, and fails when a figure exceeds its limit:
//
//	localservices [--services 500] [--settle 5s] [--steady 30s]
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/agent"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

func main() { command.Main(run) }

func run(ctx context.Context) (err error) {
	services := flag.Int("services", 500, "Services with externalTrafficPolicy Local")
	settle := flag.Duration("settle", 5*time.Second, "rest before the measurement")
	steady := flag.Duration("steady", 30*time.Second, "how long the probes are watched")
	serve := flag.Bool("serve", false, "answer like kube-proxy (set by the program itself)")
	flag.Parse()
	if *serve {
		return agent.ServeLocal(ctx, *services, os.Stdout)
	}
	ports, stop, err := startProxy(ctx, *services)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	figures, err := agent.MeasureLocal(ctx, ports, *settle, *steady)
	return errors.Join(err, controller.Report(os.Stdout, figures))
}

// startProxy starts this program once more, in the place of kube-proxy, and returns its ports.
func startProxy(ctx context.Context, services int) (ports []int32, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, self, "--serve", "--services", strconv.Itoa(services))
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	stop = func() error {
		cancel()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve like kube-proxy: %w", err)
		}
		return nil
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("serve like kube-proxy: %w", err)
	}
	for lines := bufio.NewScanner(out); len(ports) < services && lines.Scan(); {
		port, err := strconv.ParseInt(lines.Text(), 10, 32)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("serve like kube-proxy: %w", err), stop())
		}
		ports = append(ports, int32(port))
	}
	if len(ports) < services {
		return nil, nil, errors.Join(fmt.Errorf("kube-proxy's stand-in serves %d ports of %d", len(ports), services),
			stop())
	}
	return ports, stop, nil
}
