//go:build linux

package main

import (
	"context"
	"net/netip"
	"os"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose/examine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
)

// look returns what diagnoses once: the node, or one address where it is valid.
func (f *diagnoseFlags) look(address netip.Addr) (func(context.Context) (diagnose.Document, error), error) {
	config, err := f.examination()
	if err != nil {
		return nil, err
	}
	examiner := examine.New(config)
	if !address.IsValid() {
		return examiner.Examine, nil
	}
	return func(ctx context.Context) (diagnose.Document, error) { return examiner.ExamineAddress(ctx, address) }, nil
}

func (f *diagnoseFlags) examination() (c examine.Config, err error) {
	if c.Node, err = f.name(); err != nil {
		return c, err
	}
	byHand, given, err := f.network.expected()
	if err != nil {
		return c, usageError{err}
	}
	if given {
		c.ByHand = &byHand
	}
	c.Interface = f.iface
	c.Uplink = f.uplink
	c.Timeout = f.timeout
	c.KubeVIPNamespace = f.kubeVIPNamespace
	c.Reader = netstate.NewReader()
	c.Prober = arp.NewProber()
	if given && f.kubeconfig == "" && !inCluster() {
		return c, nil
	}
	if c.Client, err = f.client(); err != nil {
		c.Client = nil
		c.NoClient = err
	}
	return c, nil
}

// inCluster reports whether the process runs in a pod with a ServiceAccount.
func inCluster() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }
