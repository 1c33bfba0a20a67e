package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announcement"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

func newDiagnoseVIPCommand(f *diagnoseFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "vip <address>",
		Short: "Tells who answers for the address of a Service, who should, and what this node has to do with it",
		Long: "Tells who answers for the address of a Service, who should, and what this node has to do with it. Nothing is changed.\n\n" +
			"The flags and exit codes are those of diagnose.",
		Example: "  phoenixnap-agent diagnose vip 203.0.113.3\n" +
			"  phoenixnap-agent diagnose vip 203.0.113.3 --vlan 56 --network 203.0.113.0/29 --address 203.0.113.2",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one address, not %d", len(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			address, err := netip.ParseAddr(args[0])
			if err != nil || !address.Is4() {
				return usageError{fmt.Errorf("%q is no IPv4 address: give that of a Service, such as 203.0.113.3", args[0])}
			}
			return runDiagnose(c, *f, address)
		},
	}
}

// lookAtAddress says what is known of the address that was asked for. Of the node's own checks only those are kept that
// are not well: they may be the cause.
func (s *session) lookAtAddress(ctx context.Context, d diagnose.Document, said known, view announcement.View) (diagnose.Document, error) {
	d.Address = &diagnose.Address{Address: s.asked, Held: view.Snapshot.Holds(s.asked), Holders: holders(said.services, s.asked)}
	targets := slices.DeleteFunc(said.targets(), func(t announcement.Target) bool { return t.Address != s.asked })
	for _, t := range targets {
		d.Address.Services = append(d.Address.Services, t.Service)
	}
	if len(targets) == 0 {
		targets = []announcement.Target{{Address: s.asked}}
	}
	d.Findings = slices.DeleteFunc(slices.Clone(d.Findings), func(f check.Finding) bool { return f.Status == check.OK || f.Status == check.Skip })
	if unasked, broken := announcement.Unasked(view.Report, targets); broken || view.Report.Interface == "" {
		d.Address.Unasked = "this node's own way to the public network is broken"
		d.Findings = append(d.Findings, unasked...)
		return d.Sum(), nil
	}
	observations, err := announcement.Observe(ctx, s.asker, s.reader, view, targets)
	if err != nil {
		return d, fmt.Errorf("look %s up: %w", s.asked, err)
	}
	for _, o := range observations {
		d.Findings = append(d.Findings, announcement.Judge(o))
	}
	o := observations[0]
	d.Address.ReturnBy, d.Address.Unasked = o.ReturnBy, o.Error
	for _, mac := range o.MACs {
		d.Address.Claimants = append(d.Address.Claimants, diagnose.Claimant{MAC: mac, Nodes: owners(said.nodes, mac)})
	}
	return d.Sum(), nil
}

// vipHost is the annotation that kube-vip writes on a Service when it takes its address over: the name of the node.
const vipHost = "kube-vip.io/vipHost"

// holders are the nodes that should announce an address, and who says so.
func holders(services []*corev1.Service, address netip.Addr) []diagnose.Holder {
	var found []diagnose.Holder
	for _, t := range announcement.Targets(services) {
		for _, s := range services {
			if t.Address == address && t.Service == s.Namespace+"/"+s.Name && s.Annotations[vipHost] != "" {
				found = append(found, diagnose.Holder{Node: s.Annotations[vipHost], Says: "annotation " + vipHost + " of Service " + t.Service})
			}
		}
	}
	return found
}

// owners are the names of the Nodes that reported a hardware address as theirs.
func owners(nodes []corev1.Node, mac string) []string {
	var names []string
	for _, node := range nodes {
		var identity contract.Identity
		if json.Unmarshal([]byte(node.Annotations[contract.NodeReportedIdentity]), &identity) == nil && slices.Contains(identity.MACs, mac) {
			names = append(names, node.Name)
		}
	}
	return names
}
