package vip

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// nameAge is how long the owner of a hardware address is cached.
	nameAge = 10 * time.Minute
	// listPause is the shortest time between two listings of all Nodes, and how long it is cached that an address
	// belongs to none: the agent of a new Node may report it any moment.
	listPause = time.Minute
	// pageSize bounds how many Nodes are in memory at a time.
	pageSize = 50
	// lookupTimeout bounds the requests of one lookup.
	lookupTimeout = 15 * time.Second
	// maxNames bounds how many hardware addresses are remembered.
	maxNames = 64
)

// MACTable finds the Node to which a hardware address belongs, as the agents report it (contract.NodeReportedIdentity).
// An agent watches only its own Node, so the table reads others: first the likely Nodes, by name; only if none of them
// has the address, and machines contradict each other, it pages through all Nodes, at most once a minute. It is safe
// for concurrent use.
type MACTable struct {
	nodes typedcorev1.NodeInterface
	// onNews is called after something was looked up.
	onNews func()
	wake   loop.Wake

	mu       sync.Mutex
	names    map[string]named
	wanted   map[string]lookup
	listedAt time.Time
}

// named is what is known of a hardware address.
type named struct {
	node string // empty: it belongs to no Node
	at   time.Time
}

func (n named) old() bool {
	if n.node == "" {
		return time.Since(n.at) >= listPause
	}
	return time.Since(n.at) >= nameAge
}

// lookup is a request for the owner of a hardware address.
type lookup struct {
	likely   []string
	thorough bool
}

// NewMACTable returns a MAC table; it starts nothing. onNews is called after a look-up; it must not block.
func NewMACTable(nodes typedcorev1.NodeInterface, onNews func()) *MACTable {
	return &MACTable{
		nodes: nodes, onNews: onNews, wake: loop.NewWake(), names: map[string]named{}, wanted: map[string]lookup{},
	}
}

// Of returns the name of the Node to which a hardware address belongs; empty and known when it belongs to none. Run
// looks up what is not known: among the likely Nodes and, if thorough, among all.
func (t *MACTable) Of(mac string, thorough bool, likely ...string) (node string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, known := t.names[mac]
	if known && !found.old() {
		return found.node, true
	}
	if len(t.wanted) < maxNames {
		t.wanted[mac] = lookup{likely: likely, thorough: thorough}
		t.wake.Signal()
	}
	// The old value holds until there is a new one.
	return found.node, known
}

// Run looks up what Of requests, until ctx ends.
func (t *MACTable) Run(ctx context.Context) error {
	for t.wake.Await(ctx) {
		if err := t.Look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to look up the owner of a hardware address")
		}
		if ctx.Err() == nil {
			t.onNews()
		}
	}
	return nil
}

// Look looks up pending requests of Of at once.
func (t *MACTable) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	t.mu.Lock()
	wanted := t.wanted
	t.wanted = map[string]lookup{}
	t.mu.Unlock()
	asked := map[string]bool{"": true}
	for mac, about := range wanted {
		for _, name := range about.likely {
			if asked[name] {
				continue
			}
			asked[name] = true
			if err := t.get(ctx, name); err != nil {
				return err
			}
		}
		if !about.thorough || t.fresh(mac) {
			delete(wanted, mac)
		}
	}
	if len(wanted) == 0 || !t.mayList() {
		return nil
	}
	return t.list(ctx, wanted)
}

// fresh reports whether the address is known by now.
func (t *MACTable) fresh(mac string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, known := t.names[mac]
	return known && !found.old()
}

func (t *MACTable) mayList() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.listedAt.IsZero() && time.Since(t.listedAt) < listPause {
		return false
	}
	t.listedAt = time.Now()
	return true
}

func (t *MACTable) get(ctx context.Context, name string) error {
	node, err := t.nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // a lease may outlive its Node
	}
	if err != nil {
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	for _, mac := range macsOf(node) {
		t.learn(mac, node.Name)
	}
	return nil
}

// list pages through all Nodes until the wanted addresses are found. What is in none of them belongs to no Node.
func (t *MACTable) list(ctx context.Context, wanted map[string]lookup) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := t.nodes.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list Nodes: %w", err)
		}
		for i := range page.Items {
			for _, mac := range macsOf(&page.Items[i]) {
				if _, found := wanted[mac]; found {
					t.learn(mac, page.Items[i].Name)
					delete(wanted, mac)
				}
			}
		}
		if len(wanted) == 0 || page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	for mac := range wanted {
		t.learn(mac, "")
	}
	return nil
}

func (t *MACTable) learn(mac, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.names[mac]; !known && len(t.names) >= maxNames {
		delete(t.names, slices.MinFunc(slices.Collect(maps.Keys(t.names)),
			func(a, b string) int { return t.names[a].at.Compare(t.names[b].at) }))
	}
	t.names[mac] = named{node: node, at: time.Now()}
}

// macsOf are the hardware addresses that the agent of a Node reports.
func macsOf(node *corev1.Node) []string {
	var id contract.Identity
	// A report that cannot be read names no node.
	if json.Unmarshal([]byte(node.Annotations[contract.NodeReportedIdentity]), &id) != nil {
		return nil
	}
	return slices.Clone(id.MACs)
}
