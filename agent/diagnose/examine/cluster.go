//go:build linux

package examine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// pageSize bounds one answer to a question for all Nodes.
const pageSize = 500

// cluster is what the API server returns.
type cluster struct {
	node     *corev1.Node
	services []*corev1.Service
	// listed reports that services is complete.
	listed bool
	// known is what the IPBlocks say; nothing where they cannot be read.
	known blocks.Known
	// err is why the API server was not or not fully read; nil when it was, or need not be.
	err error
}

func (c cluster) targets() []vip.Target { return vip.Targets(c.services) }

// networks are those that the Node lists. A list that cannot be read is a finding.
func (c cluster) networks() []contract.NodeNetwork {
	if c.node == nil {
		return nil
	}
	networks, _, _ := contract.ParsePublicNetworks(c.node.Annotations)
	return networks
}

// territory says by their names which network an address is of; nothing where the Node lists none.
func (c cluster) territory() blocks.Territory {
	var t blocks.Territory
	for _, n := range c.networks() {
		t = append(t, blocks.Area{ID: n.Name, Name: n.Name,
			Blocks: slices.Concat(n.Blocks, c.known.Networks()[n.Name])})
	}
	if len(t) == 0 {
		return nil
	}
	return t.With(c.known.Networks())
}

// servicesOf are the Services with addresses of the public network of a name; all where the Node lists none.
func (c cluster) servicesOf(name string) []*corev1.Service {
	if name == "" {
		return c.services
	}
	return c.territory().Services(c.services, name)
}

// ask reads from the API server. If it cannot be reached, the checks that do not need it still run.
func (e *Examiner) ask(ctx context.Context) cluster {
	if e.Client == nil {
		return cluster{err: e.NoClient}
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	var c cluster
	node, err := e.Client.CoreV1().Nodes().Get(ctx, e.Node, metav1.GetOptions{})
	if err != nil {
		c.err = fmt.Errorf("get Node %s: %w", e.Node, err)
		// Without an answer, the next request would only give the same error again.
		if answered := apierrors.APIStatus(nil); e.ByHand == nil || !errors.As(err, &answered) {
			return c
		}
	} else {
		c.node = node
	}
	list, err := e.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		c.err = errors.Join(c.err, fmt.Errorf("list Services: %w", err))
		return c
	}
	for i := range list.Items {
		c.services = append(c.services, &list.Items[i])
	}
	c.listed = true
	c.readBlocks(ctx, e.IPBlocks)
	return c
}

// readBlocks reads the IPBlocks. The kubelet's kubeconfig, which is used on a node, does not permit that: then what
// published Services say of their blocks counts, and nothing is missing.
func (c *cluster) readBlocks(ctx context.Context, source nodewatch.BlockSource) {
	if source == nil {
		return
	}
	list, err := source.List(ctx, metav1.ListOptions{})
	if err != nil {
		if !apierrors.IsForbidden(err) {
			c.err = errors.Join(c.err, client.Explain("list the IPBlocks", err))
		}
		return
	}
	for i := range list.Items {
		c.known.See(&list.Items[i])
	}
}

// nodes calls use for all Nodes.
func (e *Examiner) nodes(ctx context.Context, use func(*corev1.Node)) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := e.Client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return fmt.Errorf("list Nodes: %w", err)
		}
		for i := range page.Items {
			use(&page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// owners are the names of Nodes by the hardware addresses that their agents reported.
type owners map[string][]string

func (o owners) learn(node *corev1.Node) {
	var identity contract.Identity
	// A report that cannot be read names no node.
	if json.Unmarshal([]byte(node.Annotations[contract.NodeReportedIdentity]), &identity) != nil {
		return
	}
	for _, mac := range identity.MACs {
		if mac = strings.ToLower(mac); !slices.Contains(o[mac], node.Name) {
			o[mac] = append(o[mac], node.Name)
		}
	}
}

// sightingOf is what the agent of a Node reports of an address.
func sightingOf(node *corev1.Node, address netip.Addr) (s diagnose.Sighting, reported bool) {
	all, err := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
	entry, reported := all[address]
	if err != nil || !reported {
		return diagnose.Sighting{}, false
	}
	return diagnose.Sighting{Node: node.Name, State: entry.State, MAC: entry.MAC, Held: entry.Held, Since: entry.Since},
		true
}

// agreement is what the agents have agreed on: who announces which address; nil where they announce none, or nothing is
// known.
func (e *Examiner) agreement(ctx context.Context, s observed) (*election.View, error) {
	if e.Client == nil || e.announcer(ctx, s).Placement() != announcer.UserSpace {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	d, err := store.New(e.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem), s.expected.Network.ID).Read(ctx)
	if err != nil || d.View == "" {
		return nil, err
	}
	view, err := election.ParseView(d.View)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerView, err)
	}
	return view, nil
}

// ownedBy are the addresses that a node announces by the agreement, sorted.
func ownedBy(view *election.View, node string) []netip.Addr {
	if view == nil {
		return nil
	}
	var owned []netip.Addr
	for address, owner := range view.Owners {
		if owner.Node == node {
			owned = append(owned, address)
		}
	}
	slices.SortFunc(owned, netip.Addr.Compare)
	return owned
}

// agreed is the node that announces an address by the agreement; nil when there is none.
func agreed(view *election.View, address netip.Addr) []diagnose.Holder {
	if view == nil || view.Owners[address].Node == "" {
		return nil
	}
	owner := view.Owners[address]
	return []diagnose.Holder{{Node: owner.Node, Source: fmt.Sprintf("ConfigMap %s (since %s)", contract.AnnouncerView,
		owner.Since.UTC().Format(time.RFC3339))}}
}

// managed is what an agent keeps on this node, as the agent's own marks in the kernel show.
type managed struct {
	// things in the words of --manage.
	things []string
	// mask has the mark bits of the return path, zero where it is not managed.
	mask uint32
}

func managedOf(s check.Snapshot) managed {
	var m managed
	for _, l := range s.Links {
		if _, ours, err := ownership.ParseRecord(l.Alias); ours || err != nil {
			m.things = []string{"vlan"}
		}
	}
	for _, r := range s.Rules {
		if r.Protocol == ownership.Protocol && r.Mask != 0 && m.mask == 0 {
			m.things = append(m.things, "return-path")
			m.mask = r.Mask
		}
	}
	return m
}
