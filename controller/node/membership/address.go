package membership

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// source is the block from which the servers that join in one pass get their addresses. Without a block it has the
// reason.
type source struct {
	block  plan.Block
	ledger plan.Ledger
	// reason and text are for the Nodes that wait; both are empty if waiting is enough.
	reason, text string
	usable       bool
}

// address returns an address of the node block for the server, the one that it already holds if any. ok is false when
// the server has to wait; the reason is recorded on the Node if a user must act. Without addresses it is the zero Addr.
func (p *pass) address(ctx context.Context, serverID string, node *corev1.Node) (_ netip.Addr, ok bool, err error) {
	if p.config.WithoutAddress {
		return netip.Addr{}, true, nil
	}
	if p.source == nil {
		found, err := p.findSource(ctx)
		if err != nil {
			return netip.Addr{}, false, err
		}
		p.source = &found
	}
	if !p.source.usable {
		if p.source.reason != "" {
			p.events.record(node, eventType(p.source.reason), p.source.reason, p.source.text)
			p.rests[serverID] = p.config.Now().Add(waitRest)
		}
		return netip.Addr{}, false, nil
	}
	return p.allot(ctx, serverID, node)
}

func eventType(reason string) string {
	if reason == ReasonDryRun {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// allot allocates an address in the ledger and saves it.
func (p *pass) allot(ctx context.Context, serverID string, node *corev1.Node) (netip.Addr, bool, error) {
	holder := plan.Holder{Name: serverID}
	next, grant, err := p.source.ledger.Expire(nil, p.config.Now()).Take(holder,
		plan.Ask{Now: p.config.Now(), Barred: p.inUse})
	switch {
	case errors.Is(err, plan.ErrResting):
		klog.FromContext(ctx).V(2).Info("Free addresses of the node block are in quarantine", "block",
			p.source.block.ID, "until", p.source.ledger.RestEnds())
		p.rests[serverID] = p.config.Now().Add(waitRest)
		return netip.Addr{}, false, nil
	case errors.Is(err, plan.ErrFull), errors.Is(err, plan.ErrClosed):
		p.events.record(node, corev1.EventTypeWarning, ReasonNodeBlockFull, fmt.Sprintf(
			"IP block %s (%s) has no address left for this node: set a larger block with --node-ip-block, "+
				"use no addresses with --node-address=none, or select fewer nodes with --service-node-selector",
			p.source.block.ID, p.source.block.CIDR))
		p.rests[serverID] = p.config.Now().Add(waitRest)
		return netip.Addr{}, false, nil
	case err != nil:
		return netip.Addr{}, false, err
	}
	if held, had := p.source.ledger.AddressOf(holder); had && held == grant.Address {
		return held, true, nil
	}
	if p.source.ledger, err = p.config.Ledgers.Save(ctx, next); err != nil {
		return netip.Addr{}, false, err
	}
	return grant.Address, true, nil
}

// inUse reports addresses that servers have in the network without an entry in the ledger.
func (p *pass) inUse(address netip.Addr) bool {
	for _, member := range p.network.Members {
		if slices.Contains(member.IPs, address) {
			return true
		}
	}
	for _, server := range p.servers {
		if entry, member := membershipOf(server, p.network.ID); member && slices.Contains(entry.IPs, address) {
			return true
		}
	}
	return false
}

// free releases an address in the ledger of its block.
func (p *pass) free(ctx context.Context, serverID string, address netip.Addr, unused bool) error {
	seen, err := p.sight(ctx, true)
	if err != nil {
		return err
	}
	known := seen.all()
	at := slices.IndexFunc(known, func(b plan.Block) bool { return b.CIDR.IsValid() && b.CIDR.Contains(address) })
	if at < 0 {
		return nil // the block no longer exists, so its ledger is obsolete
	}
	current, err := p.config.Ledgers.Get(ctx, known[at].ID)
	if errors.Is(err, allocation.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	holder := plan.Holder{Name: serverID}
	if _, holds := current.AddressOf(holder); !holds {
		return nil
	}
	next := current.Free(holder, p.config.Now())
	if unused {
		delete(next.Resting, address)
	}
	if next, err = p.config.Ledgers.Save(ctx, next); err != nil {
		return err
	}
	if p.source != nil && p.source.block.ID == next.BlockID {
		p.source.ledger = next
	}
	return nil
}
