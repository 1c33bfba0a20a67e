// Package instances answers Kubernetes' questions about the server behind a Node.
package instances

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// ReasonPossibleNodeDeletion is the reason of the events that precede the deletion of a Node, or say
// why it is held back.
const ReasonPossibleNodeDeletion = "PossibleNodeDeletion"

// Instances implements cloudprovider.InstancesV2 from the shared inventory.
type Instances struct {
	inventory *Inventory
	nodes     corelisters.NodeLister
	recorder  record.EventRecorder
	gate      *gate
}

var _ cloudprovider.InstancesV2 = (*Instances)(nil)

// New returns the instances of the account that inventory tells of.
func New(inventory *Inventory, nodes corelisters.NodeLister, recorder record.EventRecorder) *Instances {
	return &Instances{inventory: inventory, nodes: nodes, recorder: recorder, gate: newGate()}
}

// InstanceExists reports false, and Kubernetes then deletes the Node at once, only when the server is
// proven gone: missing from a fresh and non-empty list and inaccessible by its ID, or released to its
// reservation; twice, at least 30 seconds apart; and not one of many that vanish together. Whatever
// else is not plain existence is an error, which leaves the Node alone.
func (i *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	id, list, err := i.locate(ctx, node)
	if err != nil {
		return false, err
	}
	missing, err := i.isMissing(ctx, id, list)
	if err != nil {
		return false, err
	}
	if !missing {
		i.gate.present(id)
		return true, nil
	}
	return i.decide(ctx, node, id, list)
}

// isMissing asks both witnesses, the list and the server's own resource.
func (i *Instances) isMissing(ctx context.Context, id string, list List) (bool, error) {
	if server, ok := list.ByID[id]; ok {
		return server.Status == pnap.ServerReserved, nil
	}
	server, err := i.inventory.Server(ctx, id)
	switch {
	case err == nil:
		return server.Status == pnap.ServerReserved, nil
	case pnap.IsInaccessible(err):
		return true, nil
	default:
		return false, err
	}
}

func (i *Instances) decide(ctx context.Context, node *corev1.Node, id string, list List) (bool, error) {
	others, err := i.knownServers(list)
	if err != nil {
		return false, err
	}
	result, count, changed := i.gate.absent(id, list.AskedAt, others)
	logger := klog.FromContext(ctx)
	switch result {
	case gone:
		if changed {
			logger.Info("Server is gone, its Node may be deleted", "node", node.Name, "server", id)
			i.recorder.Eventf(node, corev1.EventTypeWarning, ReasonPossibleNodeDeletion,
				"phoenixNAP server %s is gone: it was missing twice; the Node will be deleted", id)
		}
		return false, nil
	case held:
		if changed {
			logger.Info("Deletion of a Node is held back because many servers vanish at once", "node", node.Name, "server", id, "missing", count)
			i.recorder.Eventf(node, corev1.EventTypeWarning, ReasonPossibleNodeDeletion,
				"phoenixNAP server %s is missing, but so are many (%s): the Node is kept; check the credentials, or delete the Node yourself", id, count)
		}
		return false, fmt.Errorf("server %s is missing, and with it too many to believe it (%s)", id, count)
	default:
		if changed {
			logger.Info("Server is missing", "node", node.Name, "server", id, "confirmAfter", confirmAfter)
			i.recorder.Eventf(node, corev1.EventTypeWarning, ReasonPossibleNodeDeletion,
				"phoenixNAP server %s is missing; the Node will be deleted if that is confirmed after %s", id, confirmAfter)
		}
		return false, fmt.Errorf("server %s is missing, to be confirmed after %s", id, confirmAfter)
	}
}

// knownServers returns the servers that Nodes name, with true for those that the list lacks.
func (i *Instances) knownServers(list List) (map[string]bool, error) {
	nodes, err := i.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	known := map[string]bool{}
	for _, node := range nodes {
		if id, err := contract.ParseProviderID(node.Spec.ProviderID); err == nil {
			server, ok := list.ByID[id]
			known[id] = !ok || server.Status == pnap.ServerReserved
		}
	}
	return known, nil
}

// InstanceShutdown reports whether the server is powered off. Any other state, known or not, is not.
func (i *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	id, list, err := i.locate(ctx, node)
	if err != nil {
		return false, err
	}
	server, ok := list.ByID[id]
	if !ok {
		if server, err = i.inventory.Server(ctx, id); err != nil {
			return false, err
		}
	}
	return server.Status == pnap.ServerPoweredOff, nil
}

// locate returns the ID of the Node's server and a list that may be trusted. A list without any server
// is not: the account that runs this Node has at least one.
func (i *Instances) locate(ctx context.Context, node *corev1.Node) (string, List, error) {
	id, err := contract.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return "", List{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	list, err := i.inventory.List(ctx)
	if err != nil {
		return "", List{}, err
	}
	if len(list.ByID) == 0 {
		return "", List{}, errors.New("the list of servers is empty: check that the credentials are of the account that owns the servers")
	}
	return id, list, nil
}

// InstanceMetadata returns what the framework writes to the Node: provider ID, type, region, addresses
// and labels. It never returns nil without an error.
func (i *Instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	list, err := i.inventory.List(ctx)
	if err != nil {
		return nil, err
	}
	server, err := i.find(ctx, node, list)
	if err != nil {
		return nil, err
	}
	addresses := nodeAddresses(node, server)
	if len(addresses) < 2 && !withoutNetwork(server) { // the hostname alone is no address that anybody could reach
		return nil, fmt.Errorf("server %s of node %s has no address: connect it to a network or start the kubelet with --node-ip", server.ID, node.Name)
	}
	providerID := node.Spec.ProviderID // immutable once set
	if providerID == "" {
		providerID = contract.ProviderID(server.ID)
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:       providerID,
		InstanceType:     labelValue(server.Type),
		NodeAddresses:    addresses,
		Region:           labelValue(server.Location),
		AdditionalLabels: serverLabels(server),
	}, nil
}

// find returns the server of a Node. A Node whose server cannot be named gets an event that says why.
func (i *Instances) find(ctx context.Context, node *corev1.Node, list List) (pnap.Server, error) {
	if node.Spec.ProviderID != "" {
		id, err := contract.ParseProviderID(node.Spec.ProviderID)
		if err != nil {
			return pnap.Server{}, fmt.Errorf("node %s: %w", node.Name, err)
		}
		if server, ok := list.ByID[id]; ok {
			return server, nil
		}
		return i.inventory.Server(ctx, id)
	}
	claimed, err := i.claimed(node)
	if err != nil {
		return pnap.Server{}, err
	}
	server, err := match(node, list.ByID, claimed)
	var failure *matchError
	if errors.As(err, &failure) {
		i.recorder.Event(node, corev1.EventTypeWarning, failure.reason, failure.text)
	}
	if err != nil {
		return pnap.Server{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Found the server of a Node", "node", node.Name, "server", server.ID, "hostname", server.Hostname)
	return server, nil
}

// claimed returns the servers that other Nodes' provider IDs name, with those Nodes' names.
func (i *Instances) claimed(node *corev1.Node) (map[string]string, error) {
	nodes, err := i.nodes.List(labels.Everything())
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
