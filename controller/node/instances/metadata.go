package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// waits reports whether a Node waits for its first initialization.
func waits(node *corev1.Node) bool {
	return node.Spec.ProviderID == "" || slices.ContainsFunc(node.Spec.Taints,
		func(taint corev1.Taint) bool { return taint.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// InstanceMetadata returns what the framework writes to the Node. It never returns nil without an error.
func (i *Instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	age := i.config.Inventory.config.Window
	if node.Spec.ProviderID != "" { // the framework checks every Node every five minutes
		age = i.maxAge()
	}
	list, err := i.config.Inventory.Recent(ctx, age)
	if err != nil {
		if waits(node) {
			i.reportFailure(ctx, node, err)
		}
		return nil, err
	}
	server, err := i.find(ctx, node, list)
	if err != nil {
		return nil, err
	}
	i.config.Metrics.setMissing(i.gate.counts(list.AskedAt))
	addresses := nodeAddresses(node, server)
	if len(addresses) < 2 && !withoutNetwork(server) { // only the hostname is not a reachable address
		return nil,
			fmt.Errorf("server %s of node %s has no address: connect it to a network or start the kubelet with "+
				"--node-ip", server.ID, node.Name)
	}
	i.checkNodeIP(node, server)
	// A provider ID that is set cannot be changed, whoever wrote it.
	return &cloudprovider.InstanceMetadata{
		ProviderID:       cmp.Or(node.Spec.ProviderID, contract.ProviderIDAs(i.config.ProviderIDFormat, server.ID)),
		InstanceType:     labelValue(server.Type),
		NodeAddresses:    addresses,
		Zone:             Zone(node, server),
		Region:           labelValue(server.Location),
		AdditionalLabels: Labels(server),
	}, nil
}

// checkNodeIP warns about a --node-ip that is not an address of the server, if the API knows the server's networks.
func (i *Instances) checkNodeIP(node *corev1.Node, server pnap.Server) {
	foreign := foreignNodeIPs(node, server)
	if len(foreign) == 0 || withoutNetwork(server) {
		return
	}
	i.events.warn(node, ReasonMisconfiguredInternalIP,
		"the kubelet's --node-ip %s is not an address of phoenixNAP server %s, which has %s; "+
			"the Node keeps the address: correct --node-ip unless it is intended",
		join(foreign), server.ID, join(allAddresses(server)))
}

// find returns the server of a Node. If it finds none, it records an event with the reason on the Node.
func (i *Instances) find(ctx context.Context, node *corev1.Node, list List) (pnap.Server, error) {
	if node.Spec.ProviderID != "" {
		id, err := contract.ParseProviderID(node.Spec.ProviderID)
		if err != nil {
			return pnap.Server{}, fmt.Errorf("node %s: %w", node.Name, err)
		}
		return i.server(ctx, id, list)
	}
	claimed, err := i.claimed(node)
	if err != nil {
		return pnap.Server{}, err
	}
	server, err := match(node, list.ByID, claimed)
	var failure *matchError
	if errors.As(err, &failure) {
		i.events.warn(node, failure.reason, "%s", failure.text)
	}
	if err != nil {
		return pnap.Server{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Found the server of a Node", "node", node.Name, "server", server.ID, "hostname",
		server.Hostname)
	return server, nil
}

// claimed returns the servers of other Nodes, by provider ID, with those Nodes' names.
func (i *Instances) claimed(node *corev1.Node) (map[string]string, error) {
	nodes, err := i.config.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	owners := map[string]string{}
	for _, other := range nodes {
		if id, err := contract.ParseProviderID(other.Spec.ProviderID); err == nil && other.Name != node.Name {
			owners[id] = other.Name
		}
	}
	return owners, nil
}
