package membership

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// change locks the account, reads again and acts. With audit it searches for surplus blocks if there is no step.
func (m *Manager) change(ctx context.Context, audit bool) (again time.Duration, err error) {
	done, err := m.config.Account.Lock(ctx)
	if err != nil {
		return soon, err
	}
	defer done()
	list, err := m.config.Servers.List(ctx)
	if err != nil {
		return soon, err
	}
	seen, err := m.observe(ctx, list, m.config.Now())
	if err != nil {
		return soon, err
	}
	steps := m.recordRefusals(decide(seen))
	idle := audit && m.isIdle(seen)
	if steps, err = m.confirm(ctx, seen, steps, &idle); err != nil {
		return soon, err
	}
	if seen.network.Status != network.StatusReady {
		klog.FromContext(ctx).V(2).Info("Waiting for the public network", "network", seen.network.ID, "status",
			seen.network.Status)
		return soon, nil
	}
	p := &pass{Manager: m, observed: seen}
	if audit && len(steps) == 0 {
		return soon, p.audit(ctx, idle)
	}
	for _, each := range steps[:min(len(steps), maxChanges)] {
		err := p.take(ctx, each)
		if errors.Is(err, allocation.ErrUnreadable) { // others need not wait for its repair
			p.postpone(each, err)
			continue
		}
		if err != nil {
			return soon, err
		}
	}
	return soon, nil
}

// confirm drops the steps that the live Nodes do not confirm, and corrects whether no Node is wanted.
func (m *Manager) confirm(ctx context.Context, seen observed, steps []step, idle *bool) ([]step, error) {
	takes := *idle
	for _, each := range steps {
		takes = takes || each.isRemoval()
	}
	if !takes {
		return steps, nil
	}
	live, err := m.confirmWanted(ctx)
	if err != nil {
		return nil, err
	}
	*idle = *idle && len(live) == 0
	var confirmed []step
	for _, each := range steps {
		recorded := seen.memberRecord.members[each.server]
		if _, isWanted := live[each.server]; isWanted && each.isRemoval() && recorded.Network == seen.network.ID {
			continue
		}
		confirmed = append(confirmed, each)
	}
	return confirmed, nil
}

// pass is one pass of changes under the lock of the account. Its memberRecord and ledger follow what is saved.
type pass struct {
	*Manager
	observed
	// sources of addresses; none until the first server joins.
	sources []source
}

// postpone reports on the Node of a server what keeps it from its step, and lets the server wait.
func (p *pass) postpone(s step, cause error) {
	p.record(p.nodeOf(s.server), corev1.EventTypeWarning, ReasonNodeBlockUnavailable,
		"the addresses of the node block are not known: "+cause.Error())
	p.backOff(s.server)
}

// nodeOf finds a Node of a server, wanted or not.
func (p *pass) nodeOf(serverID string) *corev1.Node {
	for _, node := range p.nodes {
		if id, err := contract.ParseProviderID(node.Spec.ProviderID); err == nil && id == serverID {
			return node
		}
	}
	return nil
}

func (p *pass) take(ctx context.Context, s step) error {
	switch s.kind {
	case join:
		return p.join(ctx, s)
	case leave:
		return p.leave(ctx, s)
	case forget:
		return p.forget(ctx, s.server)
	case lost:
		return p.confirmLost(ctx, s.server)
	case refuse: // reported before
		return nil
	default:
		return fmt.Errorf("unknown step %d", s.kind)
	}
}

// join records the address and the server before the API request, so that the controller, after a crash, joins the
// server with the same address and knows that the membership is its own.
func (p *pass) join(ctx context.Context, s step) error {
	node := p.wanted[s.server]
	if done, err := p.isDone(ctx, s.server, p.network.ID, true); done || err != nil {
		return err
	}
	address, ok, err := p.address(ctx, s.server, node)
	if err != nil {
		return err
	}
	if !ok {
		return nil
	}
	record := joined{Network: p.network.ID, Address: address, Node: node.Name, Since: p.config.Now().UTC()}
	if known, ours := p.memberRecord.members[s.server]; !ours || known.Address != address ||
		known.Network != record.Network {
		if p.memberRecord, err = p.store.save(ctx, p.memberRecord.with(s.server, record)); err != nil {
			return err
		}
	}
	var ips []netip.Addr
	with := " without an address"
	if address.IsValid() {
		ips = []netip.Addr{address}
		with = " with address " + address.String()
	}
	err = p.config.Cloud.JoinNetwork(ctx, s.server, p.network.ID, ips, len(ips) == 0)
	p.touch(s.server, err)
	if err == nil {
		klog.FromContext(ctx).Info("Server joins the public network", "node", node.Name, "server", s.server, "network",
			p.network.ID, "addresses", ips)
		p.record(node, corev1.EventTypeNormal, ReasonJoining,
			fmt.Sprintf("phoenixNAP server %s joins public network %s%s", s.server, p.network.ID, with))
		return nil
	}
	failure := p.reportFailure(node, ReasonJoinRefused, err)
	if pnap.IsDryRun(err) {
		return p.unrecord(ctx, s.server, true)
	}
	return failure
}

// isDone reads a server by ID before a change and reports whether it is a member of the network already, not any
// more, or about to change: the list that the step comes from may lag. Then the server waits for the list.
func (p *pass) isDone(ctx context.Context, serverID, networkID string, member bool) (bool, error) {
	server, err := p.config.Servers.ServerNow(ctx, serverID)
	if err != nil {
		return false, fmt.Errorf("read server %s before its membership changes: %w", serverID, err)
	}
	_, is := membershipOf(server, networkID)
	done := is == member || isChanging(server)
	if done {
		p.backoffs[serverID] = p.config.Now().Add(listLagPause)
	}
	return done, nil
}

// isChanging reports whether a membership of a server changes, in whatever network: the API takes one change at a time.
func isChanging(server pnap.Server) bool {
	return slices.ContainsFunc(server.PublicNetworks, func(m pnap.Membership) bool {
		return m.Status != pnap.MembershipAssigned && m.Status != ""
	})
}

// touch records that the server was, or may have been, changed.
func (p *pass) touch(serverID string, err error) {
	now := p.config.Now()
	if err == nil || pnap.IsUnanswered(err) || pnap.IsConflict(err) {
		p.touched[serverID] = now
	}
	if err != nil && (pnap.IsDryRun(err) || pnap.IsRefused(err) && !pnap.IsConflict(err)) {
		p.backoffs[serverID] = now.Add(refusedPause)
	}
	p.config.Account.Invalidate()
}

// reportFailure reports a rejected request or a dry run on the Node. A conflict is ignored, other errors returned.
func (p *pass) reportFailure(node *corev1.Node, reason string, err error) error {
	switch {
	case pnap.IsDryRun(err):
		p.record(node, corev1.EventTypeNormal, ReasonDryRun, err.Error())
		return nil
	case pnap.IsConflict(err):
		return nil // the server or the network is changing
	case pnap.IsRefused(err):
		p.record(node, corev1.EventTypeWarning, reason,
			fmt.Sprintf("the phoenixNAP API rejected the request, which is sent again every %v: %s", refusedPause,
				pnap.Explain(err)))
		return nil
	default:
		return err
	}
}

func (p *pass) leave(ctx context.Context, s step) error {
	node := p.nodeOf(s.server)
	if done, err := p.isDone(ctx, s.server, s.network, false); done || err != nil {
		return err
	}
	err := p.config.Cloud.LeaveNetwork(ctx, s.server, s.network)
	p.touch(s.server, err)
	if err != nil {
		return p.reportFailure(node, ReasonLeaveRefused, err)
	}
	klog.FromContext(ctx).Info("Server leaves the public network", "server", s.server, "network", s.network)
	p.record(node, corev1.EventTypeNormal, ReasonLeaving,
		fmt.Sprintf("phoenixNAP server %s leaves public network %s: the Node is not selected to carry "+
			"load-balancer traffic", s.server, s.network))
	return nil
}

// forget removes a server from the record; its address is quarantined before another server gets it.
func (p *pass) forget(ctx context.Context, serverID string) error {
	klog.FromContext(ctx).Info("The controller no longer manages the membership of a server",
		"server", serverID, "network", p.network.ID)
	return p.unrecord(ctx, serverID, false)
}

// confirmLost forgets a server once a read by ID shows that it does not exist, or that it was released.
func (p *pass) confirmLost(ctx context.Context, serverID string) error {
	server, err := p.config.Servers.ServerNow(ctx, serverID)
	switch {
	case pnap.IsInaccessible(err), err == nil && server.Status == pnap.ServerReserved:
		return p.forget(ctx, serverID)
	case err != nil:
		return err
	default:
		return nil // the list omitted an existing server
	}
}

// unrecord removes a server from the ledger and then from the record, in this order, so that no address stays allocated
// without a record that would free it. An address that was never sent to the API needs no quarantine.
func (p *pass) unrecord(ctx context.Context, serverID string, unused bool) error {
	recorded, known := p.memberRecord.members[serverID]
	if !known {
		return nil
	}
	if recorded.Address.IsValid() {
		if err := p.free(ctx, serverID, recorded.Address, unused); err != nil {
			return err
		}
	}
	saved, err := p.store.save(ctx, p.memberRecord.without(serverID))
	if err == nil {
		p.memberRecord = saved
	}
	return err
}

// publish updates the annotation contract.NodeMembershipManaged and reports which servers have joined and left.
func (m *Manager) publish(ctx context.Context, seen observed) error {
	m.forgetEvents(seen.nodes)
	var problems []error
	for _, node := range seen.nodes {
		id, err := contract.ParseProviderID(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		isManaged := isManagedIn(seen, id) && !slices.Contains(seen.rivals[id], node)
		problems = append(problems, m.annotate(ctx, node, isManaged))
	}
	return errors.Join(problems...)
}

// isManagedIn reports whether the controller joined the server.
func isManagedIn(o observed, serverID string) bool {
	recorded, ours := o.memberRecord.members[serverID]
	if !ours || recorded.Network != o.network.ID {
		return false
	}
	entry, member := membershipOf(o.servers[serverID], o.network.ID)
	return member && entry.Status == pnap.MembershipAssigned && isOurs(recorded, entry)
}

// named is the value of the annotation once the name of a network is in it, or is not: the names in order, separated by
// commas, nil for none. changed reports whether that is another value.
func named(before, name string, wanted bool) (after any, changed bool) {
	names := slices.DeleteFunc(strings.Split(before, ","), func(n string) bool { return n == "" || n == name })
	if wanted {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, before != ""
	}
	joined := strings.Join(names, ",")
	return joined, joined != before
}

func (m *Manager) annotate(ctx context.Context, node *corev1.Node, isManaged bool) error {
	value, changed := named(node.Annotations[contract.NodeMembershipManaged], m.config.Network.Name, isManaged)
	if !changed {
		return nil
	}
	reason := ReasonLeft
	text := "the controller no longer manages the server's membership in public network " + m.config.Network.ID
	if isManaged {
		reason = ReasonJoined
		text = "the server is a member of public network " + m.config.Network.ID
	}
	annotations := map[string]any{contract.NodeMembershipManaged: value}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encode patch of node %s: %w", node.Name, err)
	}
	_, err = m.config.Kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Membership of a Node changed", "node", node.Name, "network", m.config.Network.ID,
		"managed", isManaged)
	m.record(node, corev1.EventTypeNormal, reason, text)
	return nil
}
