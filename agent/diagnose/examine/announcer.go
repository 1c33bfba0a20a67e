//go:build linux

package examine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// agreement is what the agents have agreed on: who announces which address; nil where they announce none, or nothing is
// known.
func (e *Examiner) agreement(ctx context.Context, s observed) (*election.View, error) {
	if e.Client == nil || s.expected.Network.Announcer != contract.AnnouncerAgent {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	d, err := store.New(e.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem), s.expected.Network.NetworkID).Read(ctx)
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
