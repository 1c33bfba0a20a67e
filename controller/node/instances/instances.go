// Package instances provides Kubernetes with the server of a Node: existence, state, addresses and labels.
package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Config configures Instances.
type Config struct {
	// Inventory is the shared list of servers.
	Inventory *Inventory
	// Nodes is the shared cache of Nodes.
	Nodes corelisters.NodeLister
	// Live reads one Node without the cache, once, before its deletion is allowed.
	Live corev1client.NodesGetter
	// Networks reads Network, the configured public network; the zero value without load balancers.
	Networks *account.Account
	Network  network.Named
	// ProviderIDFormat is the format of provider IDs of new Nodes, contract.ProviderIDPhoenixNAP where it is empty.
	ProviderIDFormat string
	// Events are recorded on Nodes.
	Events record.EventRecorder
	// Metrics may be nil.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Instances implements cloudprovider.InstancesV2 from the shared inventory.
type Instances struct {
	config Config
	events *eventLimiter
	gate   *gate
}

var _ cloudprovider.InstancesV2 = (*Instances)(nil)

// New returns the instances of the inventory's account.
func New(config Config) *Instances {
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Metrics = cmp.Or(config.Metrics, NewMetrics())
	return &Instances{config: config, events: newEventLimiter(config.Events, config.Now), gate: newGate()}
}

// InstanceExists reports false, and Kubernetes then deletes the Node at once, only when the server is proven gone:
// missing from a fresh and non-empty list and inaccessible by its ID, or released to its reservation; twice, at least
// 30 seconds apart (two minutes if many are missing), both times since the Node was created; while the list has the
// servers of at least as many other Nodes, and one of them can be read by its ID; from a list that has not just lost
// more than half of its length; in an account in which the configured public network can be read; and the Node, read
// live, is still the same and not ready. Any other case without proven existence is an error, which keeps the Node.
func (i *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	id, list, err := i.locate(ctx, node)
	if err != nil {
		return false, err
	}
	defer func() { i.config.Metrics.setMissing(i.gate.counts(list.AskedAt)) }()
	server, err := i.server(ctx, id, list)
	missing := pnap.IsInaccessible(err)
	if err != nil && !missing {
		if ctx.Err() == nil {
			i.events.warn(node, ReasonPossibleNodeDeletion,
				"phoenixNAP server %s is not in the list of servers, and cannot be read by its ID: the Node is kept; %s",
				id, pnap.Remedy(err))
		}
		return false, err
	}
	if !missing && server.Status != pnap.ServerReserved {
		i.gate.present(id)
		return true, nil
	}
	return i.decide(ctx, node, id, list)
}

// server returns a server from the list, else from the server's own resource.
func (i *Instances) server(ctx context.Context, id string, list List) (pnap.Server, error) {
	if server, ok := list.ByID[id]; ok {
		return server, nil
	}
	return i.read(ctx, id, id)
}

// read reads a server by its ID, to decide about the server with the ID missing, which the list lacks.
func (i *Instances) read(ctx context.Context, id, missing string) (pnap.Server, error) {
	if i.gate.closely(missing) {
		return i.config.Inventory.Server(ctx, id)
	}
	return i.config.Inventory.KnownServer(ctx, id)
}

func (i *Instances) decide(ctx context.Context, node *corev1.Node, id string, list List) (bool, error) {
	created := node.CreationTimestamp.Time
	if list.AskedAt.Before(created) {
		return false, fmt.Errorf("server %s of node %s is not in a list that is older than the Node: retrying", id,
			node.Name)
	}
	others, err := i.knownServers(list)
	if err != nil {
		return false, err
	}
	if err := i.proveAccount(ctx, id, list, others); err != nil {
		reason := err.Error()
		if !errors.Is(err, errNoServer) { // the API's texts differ from one attempt to the next
			reason = fmt.Sprintf("public network %s, which proves the account, cannot be read", i.config.Network.ID)
		}
		if ctx.Err() == nil {
			i.events.warn(node, ReasonPossibleNodeDeletion,
				"phoenixNAP server %s is missing, but the Node is kept: %s; "+
					"check that the credentials belong to the account that owns the servers, or delete the Node "+
					"yourself", id, reason)
		}
		return false, fmt.Errorf("server %s of node %s is missing, and the account cannot be verified: %w", id,
			node.Name, err)
	}
	unreadable, err := i.othersUnreadable(ctx, id, list, others)
	if err != nil {
		return false, err
	}
	found := i.gate.absent(id, created, list, others, unreadable)
	if found.state != gone {
		return false, i.keep(ctx, node, id, found)
	}
	if err := i.confirm(ctx, node); err != nil {
		return false, err
	}
	if found.changed {
		klog.FromContext(ctx).Info("Server is gone, its Node may be deleted", "node", node.Name, "server", id)
		i.events.warn(node, ReasonPossibleNodeDeletion,
			"phoenixNAP server %s is gone: it was missing twice; the Node will be deleted", id)
	}
	return false, nil
}

// errNoServer reports that an account without a configured public network cannot be verified.
var errNoServer = errors.New("no server of this cluster is in the list of servers")

// proveAccount returns an error unless the list certainly belongs to the cluster's account: with other credentials the
// API lists other servers and answers 403 for every ID, as if all were gone. Proof is the configured public network,
// which can only be read in the right account; without one, a listed server of any Node. The proof is younger than the
// list if the server with the ID may soon be found gone.
func (i *Instances) proveAccount(ctx context.Context, id string, list List, servers map[string]bool) error {
	if i.config.Network.ID != "" {
		after := list.AskedAt
		if !i.gate.closely(id) {
			after = i.config.Now().Add(-account.PeriodicMaxAge)
		}
		_, err := i.config.Networks.Prove(ctx, i.config.Network.ID, after)
		return err
	}
	for id := range servers {
		if _, listed := list.ByID[id]; listed {
			return nil
		}
	}
	return errNoServer
}

// triedOthers bounds the reads by ID of servers that are listed: one of them may just have been deprovisioned.
const triedOthers = 3

// othersUnreadable reports that none of the listed servers that are tried can be read by its ID: that the Node's server
// cannot be read then proves nothing. It tries servers of other Nodes, or without any in the list, others of the
// account. known are the servers of all Nodes, with true for the missing ones.
func (i *Instances) othersUnreadable(ctx context.Context, id string, list List, known map[string]bool) (bool, error) {
	var ofNodes, others []string
	for other := range list.ByID {
		missing, hasNode := known[other]
		switch {
		case other == id:
		case hasNode && !missing:
			ofNodes = append(ofNodes, other)
		default:
			others = append(others, other)
		}
	}
	if len(ofNodes) > 0 {
		others = ofNodes
	}
	slices.Sort(others) // all Nodes try the same ones, whose answers are cached
	for _, other := range others[:min(len(others), triedOthers)] {
		if _, err := i.read(ctx, other, id); err == nil {
			return false, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	return len(others) > 0, nil
}

// keep explains why a Node is not deleted although its server is missing.
func (i *Instances) keep(ctx context.Context, node *corev1.Node, id string, found finding) error {
	logger := klog.FromContext(ctx)
	if found.state == held {
		if found.changed {
			logger.Info("Not deleting a Node whose server is missing", "node", node.Name, "server", id, "reason",
				found.reason)
			i.events.warn(node, ReasonPossibleNodeDeletion,
				"phoenixNAP server %s is missing, but the Node is kept: %s; check the credentials, or, if the server "+
					"is really gone, delete the Node yourself: kubectl delete node %s", id, found.reason, node.Name)
		}
		return fmt.Errorf("server %s of node %s is missing, but the Node is kept: %s", id, node.Name, found.reason)
	}
	if found.changed && !IsReady(node) {
		logger.Info("Server is missing", "node", node.Name, "server", id, "confirmAfter", found.confirmation)
		i.events.warn(node, ReasonPossibleNodeDeletion,
			"phoenixNAP server %s is missing; the Node will be deleted if that is confirmed after %s; if the server is "+
				"there, check that the credentials belong to the account that owns it", id, found.confirmation)
	}
	return fmt.Errorf("server %s is missing, to be confirmed after %s", id, found.confirmation)
}

// confirm reads the Node live: one that was replaced or is ready must not be reported as gone. A missing one may.
func (i *Instances) confirm(ctx context.Context, node *corev1.Node) error {
	current, err := i.config.Live.Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read node %s before its deletion: %w", node.Name, err)
	case current.UID != node.UID || current.Spec.ProviderID != node.Spec.ProviderID:
		return fmt.Errorf("node %s was replaced while its server was checked", node.Name)
	}
	if IsReady(current) {
		return fmt.Errorf("node %s: %w: the Node is kept", node.Name, errReady)
	}
	return nil
}

// errReady reports that a Node is Ready although its server is proven gone.
var errReady = errors.New("the Node is Ready although its server is gone")

// IsReady reports whether the kubelet of a Node reports that it is Ready.
func IsReady(node *corev1.Node) bool {
	ready := contract.FindNodeCondition(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// GoneWhileReady reports whether the server of a Ready Node is gone, with the same proof as a deletion needs: then the
// machine was replaced under the name of the Node, which Kubernetes never notices. It warns about that on the Node. An
// error means that it is not known.
func (i *Instances) GoneWhileReady(ctx context.Context, node *corev1.Node) (bool, error) {
	_, err := i.InstanceExists(ctx, node)
	if !errors.Is(err, errReady) {
		return false, err
	}
	id, list, err := i.locate(ctx, node)
	if err != nil {
		return false, err
	}
	claimed, err := i.claimed(node)
	if err != nil {
		return false, err
	}
	now := "no server of the account has the host name of the Node"
	if server, err := match(node, list.ByID, claimed); err == nil {
		now = fmt.Sprintf("the machine seems to be server %s now (%s)", server.ID, server.Hostname)
	}
	i.events.warn(node, ReasonServerReplaced, "phoenixNAP server %s, which spec.providerID of this Node names, no "+
		"longer exists, and the Node is Ready: %s. A provider ID cannot change, so register the Node again: kubectl "+
		"delete node %s, then restart the kubelet on the machine", id, now, node.Name)
	return true, nil
}

// knownServers returns the servers of all Nodes, with true for those that are not in the list.
func (i *Instances) knownServers(list List) (map[string]bool, error) {
	nodes, err := i.config.Nodes.List(labels.Everything())
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

// InstanceShutdown reports whether the server is powered off. No other state counts as powered off.
func (i *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	id, list, err := i.locate(ctx, node)
	if err != nil {
		return false, err
	}
	server, err := i.server(ctx, id, list)
	return err == nil && server.Status == pnap.ServerPoweredOff, err
}

// locate returns the ID of the Node's server and a valid list: an empty one cannot be of the cluster's account.
func (i *Instances) locate(ctx context.Context, node *corev1.Node) (string, List, error) {
	id, err := contract.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return "", List{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	i.gate.check(id, node.CreationTimestamp.Time, i.config.Now())
	age := i.maxAge()
	if i.gate.closely(id) {
		age = i.config.Inventory.config.Window
	}
	list, err := i.config.Inventory.Recent(ctx, age)
	if err == nil {
		err = list.Check()
	}
	i.reportFailure(ctx, node, err)
	return id, list, err
}

// maxAge is the maximum age of a list that must not be fresh.
func (i *Instances) maxAge() time.Duration {
	return max(i.config.Inventory.config.Window, PeriodicMaxAge)
}

// reportFailure warns about a Node that needs its server while the API cannot be asked for it.
func (i *Instances) reportFailure(ctx context.Context, node *corev1.Node, err error) {
	if err != nil && ctx.Err() == nil {
		i.events.lookupFailed(node, err)
	}
}
