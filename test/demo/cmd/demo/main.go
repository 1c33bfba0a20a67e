//go:build linux

// Command demo shows the main job of the project from end to end on this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running at the end, until interrupted")
	kubeVIP := flag.String("kube-vip", "", "version of kube-vip, one of "+strings.Join(tools.PinnedKubeVIPs(), ", ")+
		"; the newest, or what $KUBE_VIP_BINARY is, if empty")
	scale := flag.Float64("scale", 10, "how many seconds of the simulated account's time pass in a second")
	auto := flag.Bool("auto", false,
		"leave the public network of the servers to controller and agents: no person configures a VLAN")
	cni := flag.String("cni", "", "network plugin that connects the pods: "+cluster.Flannel+
		"; routes that the lab makes itself if empty")
	networks := flag.String("networks", "1", "how many public networks the cluster has: 1, or "+demo.TwoNetworks+
		", each in a location of its own, with a story about that")
	pnapctl := flag.String("pnapctl", "",
		"path of phoenixNAP's pnapctl, which shows at the end what the account holds; it is not shown if empty")
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		return run(ctx, *keep, demo.Options{Out: os.Stdout, KubeVIP: *kubeVIP, Scale: *scale, Auto: *auto,
			CNI: *cni, Networks: *networks, PNAPCTL: *pnapctl})
	})
}

func run(ctx context.Context, keep bool, o demo.Options) error {
	if err := demo.Prepare(ctx, o); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pnap-demo-")
	if err != nil {
		return fmt.Errorf("directory for logs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	o.Dir = dir
	var hold func(context.Context, *cluster.Cluster) error
	if keep {
		hold = func(ctx context.Context, c *cluster.Cluster) error { return wait(ctx, o.Out, dir, c) }
	}
	return demo.Run(ctx, o, hold)
}

// wait prints how to use what is running and returns when the user has had enough.
func wait(ctx context.Context, out io.Writer, dir string, c *cluster.Cluster) error {
	kubectl, err := tools.Binary(ctx, "kubectl")
	if err != nil {
		return fmt.Errorf("kubectl: %w", err)
	}
	fmt.Fprintf(out, `
It keeps running. In another terminal:

  export KUBECONFIG=%s
  alias kubectl=%s
  kubectl describe nodes
  kubectl describe service %s

  phoenixNAP API        %s
  what it was asked     tail -f %s
  what the account has  curl -s '%s/_fake/state?account=%s'
  controller            tail -f %s
  control plane         ls %s
  lab                   tail -f %s

Press Ctrl-C, or send SIGTERM to process %d, to stop it and remove everything.
`, c.AdminKubeconfig(), kubectl, cluster.Service, c.Sim.URL, filepath.Join(dir, "pnapsim.log"), c.Sim.URL,
		cluster.Account,
		filepath.Join(dir, "controller.log"), filepath.Join(dir, "*.log"), filepath.Join(dir, "lab.log"), os.Getpid())
	logs, err := c.CopyLogs(context.WithoutCancel(ctx))
	if err == nil {
		fmt.Fprintf(out, "The logs of the servers' programs so far are in %s.\n", logs)
	}
	<-ctx.Done()
	fmt.Fprintln(out, "\nStopping.")
	return nil
}
