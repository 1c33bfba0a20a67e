//go:build linux

// Package examiner finds out what the API server and the wire show about members of the announcer that are silent.
package examiner

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// parallel is how many members are examined at once.
const parallel = 8

// Examiner examines members.
type Examiner struct {
	// Client reads Nodes and the Leases that their kubelets and agents renew, never from a cache.
	Client kubernetes.Interface
	// Network is the ID of the public network of the members; empty while it is not known.
	Network string
	// Claimed asks on the public network (ARP) which of some addresses any other machine claims.
	Claimed func(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]bool, error)
}

// Examine returns the evidence about silent members with these addresses. Those about which something could not be
// learned are missing: what is unknown shows nothing.
func (x *Examiner) Examine(ctx context.Context, members map[string][]netip.Addr) election.Examined {
	claimed, err := x.Claimed(ctx, slices.Concat(slices.Collect(maps.Values(members))...))
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Unknown whether the addresses of silent Nodes are claimed",
			"reason", err.Error())
		return nil
	}
	examined := election.Examined{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallel)
	for member, addresses := range members {
		group.Go(func() error {
			evidence, err := x.evidence(ctx, member)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Unknown whether a silent Node is off", "node", member,
					"reason", err.Error())
				return nil
			}
			evidence.Claimed = slices.ContainsFunc(addresses, func(a netip.Addr) bool { return claimed[a] })
			mu.Lock()
			defer mu.Unlock()
			examined[member] = evidence
			return nil
		})
	}
	_ = group.Wait() // an error is logged, and the member is missing
	return examined
}

// evidence reads what the API server has about a member.
func (x *Examiner) evidence(ctx context.Context, member string) (e election.Evidence, err error) {
	node, err := x.Client.CoreV1().Nodes().Get(ctx, member, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return election.Evidence{Off: true}, nil
	case err != nil:
		return e, fmt.Errorf("read Node %s: %w", member, err)
	}
	e.Off = x.hasLeft(node) || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeOutOfService || taint.Key == cloudproviderapi.TaintNodeShutdown
	})
	lease, err := x.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, member, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return e, nil // a person may have deleted it: that shows nothing about the server
	case err != nil:
		return e, fmt.Errorf("read Lease %s/%s: %w", corev1.NamespaceNodeLease, member, err)
	}
	own, err := x.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, contract.AgentLeasePrefix+member,
		metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return e, fmt.Errorf("read Lease %s/%s%s: %w", metav1.NamespaceSystem, contract.AgentLeasePrefix, member, err)
	}
	e.Renewal = lease.ResourceVersion
	if err == nil {
		e.Renewal += "/" + own.ResourceVersion
	}
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		e.Duration = time.Duration(*seconds) * time.Second
	}
	return e, nil
}

// hasLeft reports whether the controller has found that the server of a Node is no member of the network. Its agent
// announces nothing there, and the only member of a view could not have said so.
func (x *Examiner) hasLeft(node *corev1.Node) bool {
	list, published, err := contract.ParsePublicNetworks(node.Annotations)
	isMember := slices.ContainsFunc(list, func(n contract.NodeNetwork) bool { return n.ID == x.Network && n.Member })
	return x.Network != "" && err == nil && published && !isMember
}
