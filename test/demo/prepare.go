//go:build linux

package demo

import (
	"context"
	"fmt"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Prepare builds what the story runs; the first time it takes minutes, so it is not part of the story.
func Prepare(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, "Preparing: what the demo runs is built from source once, which takes several minutes, and "+
		"kept in a cache.\nRoot is needed only to install packages that are missing (QEMU, busybox, nftables); that is said "+
		"before.")
	if err := cluster.PrepareCNI(ctx, o.CNI); err != nil {
		return fmt.Errorf("prepare the network plugin: %w", err)
	}
	if err := kernel.Prepare(ctx, append([]string{"nft", "setpriv"}, o.programs()...)...); err != nil {
		return fmt.Errorf("prepare the network: %w", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl", "kube-proxy"} {
		if _, err := tools.Binary(ctx, name); err != nil {
			return fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	packages := []string{"./controller", "./test/sim/pnapsim/cmd/pnapsim", "./test/env/lab/cmd/labd",
		"./test/env/cluster/cmd/backend"}
	if o.Networks == TwoNetworks {
		packages = append(packages, plugin)
	} else if _, err := tools.KubeVIP(ctx, o.KubeVIP); err != nil {
		return fmt.Errorf("prepare kube-vip: %w", err)
	}
	if _, err := tools.TaggedProduct(ctx, "./agent", o.agentTags()...); err != nil {
		return fmt.Errorf("prepare the agent: %w", err)
	}
	for _, pkg := range packages {
		if _, err := tools.Product(ctx, pkg); err != nil {
			return fmt.Errorf("prepare %s: %w", pkg, err)
		}
	}
	return nil
}

// programs are the programs that the servers need for recordings: script and stty are the terminal on which a diagnosis
// has its colors.
func (o Options) programs() []string {
	if o.Record == nil {
		return nil
	}
	return []string{"script", "stty"}
}
