package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/apiserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	newClientID, newSecret = "test-client-2", "Hx7rT2pLq9Vb4nZc"

	joinedID, bareID    = "5fa54d1e91867c03a0a7b4a6", "5fa54d1e91867c03a0a7b4a8"
	broughtID, orphanID = "6047127fed34ecc3ba8402d3", "6047127fed34ecc3ba8402d4"
	// abandonedID is a block that outlives its Service.
	abandonedID            = "6047127fed34ecc3ba8402d5"
	broughtCIDR, requested = "203.0.113.64/29", "203.0.113.69"
	broughtObject          = "of-the-user"
	nodesObject            = "of-the-nodes"

	foreignFinalizer = "service.kubernetes.io/load-balancer-cleanup"
	buyBlock         = "POST /ips/v1/ip-blocks"
)

// newScene is an account with two clients, of which the second may force servers into a network, with servers that are
// no members yet, with a block that the user brings, and with one that an earlier cluster controller bought and lost.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, client: admin(t), space: "shop"}
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.space}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	system, err := s.client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	s.ok(err)
	uid := string(system.UID)
	marks := map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: uid}
	account := simtest.Account()
	account.Clients = []pnapsim.ClientSeed{
		{ID: simtest.ClientID, Secret: simtest.ClientSecret, Judged: true, OwnershipTags: marks},
		{ID: newClientID, Secret: newSecret, Judged: true, OwnershipTags: marks,
			AllowForce: []string{pnapsim.ForceJoin}},
	}
	account.Blocks = append(account.Blocks,
		pnapsim.BlockSeed{ID: broughtID, Location: "ASH", CIDR: broughtCIDR,
			Grants: []string{"assign", "unassign"}},
		pnapsim.BlockSeed{ID: orphanID, Location: "ASH", CIDR: "203.0.113.72/29", Tags: map[string]string{
			contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: uid,
			contract.TagService: contract.ServiceTag(s.space, "forgotten"),
		}},
		pnapsim.BlockSeed{ID: abandonedID, Location: "ASH", CIDR: "203.0.113.80/29", Tags: map[string]string{
			contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: uid,
			contract.TagService: contract.ServiceTag("archive", "abandoned"), contract.TagRetain: contract.TagTrue,
		}})
	for id, name := range map[string]string{joinedID: "node-3", bareID: "node-5"} {
		account.Servers = append(account.Servers, pnapsim.ServerSeed{
			ID: id, Hostname: name, Location: "ASH", NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{"10.0.0.1" + name[len(name)-1:]},
		})
	}
	s.sim, s.url = simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	t.Cleanup(s.forget)
	s.bring(broughtObject, v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared, BlockID: broughtID,
		AllowedNamespaces: []string{s.space}})
	s.bring(nodesObject, v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeNodes, BlockID: simtest.NodeBlockID})
	// of another test
	err = s.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(), program, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	switchPoliciesOff(t)
	return s
}

// bring has a person create an IPBlock that brings a block.
func (s *scene) bring(name string, spec v1beta1.IPBlockSpec) {
	s.Helper()
	spec.Source = v1beta1.SourceBrought
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	_, err := plane.IPBlocks().Create(s.Context(), object, metav1.CreateOptions{})
	s.ok(err)
}

// forget deletes the records of the controller, which are of an account that ends with the test.
func (s *scene) forget() {
	blocks, err := plane.IPBlocks().List(context.WithoutCancel(s.Context()), metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, each := range blocks.Items {
		ctx := context.WithoutCancel(s.Context())
		if err := controlplane.ForgetIPBlock(ctx, plane.IPBlocks(), each.Name); err != nil {
			s.Error(err)
		}
	}
	if err := forgetNetwork(context.WithoutCancel(s.Context())); err != nil {
		s.Error(err)
	}
	maps := s.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	all, err := maps.List(context.WithoutCancel(s.Context()), metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, each := range all.Items {
		if strings.HasPrefix(each.Name, "phoenixnap-") {
			if err := maps.Delete(context.WithoutCancel(s.Context()), each.Name, metav1.DeleteOptions{}); err != nil {
				s.Error(err)
			}
		}
	}
}

// Everything that the controller does, by two processes one after the other, as the shipped ServiceAccount: addresses
// of every kind, memberships, the control-plane endpoint, orphans, other credentials, an API that is down. Nothing that
// it asks Kubernetes for is refused, nothing that it may ask for is idle, no rule of phoenixNAP is broken, no secret is
// shown, and nothing is left in the account.
//
//proves:known-bugs/missing-rights
//proves:known-bugs/loose-manifests
func TestTheWholeController(t *testing.T) {
	began := auditedSoFar(t)
	s := newScene(t)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		s.node(name)
	}
	first := startReplica(t, "first", s.url, nil, "--service-node-selector=public=true", "--manage-membership",
		"--control-plane-endpoint", "--collect-orphans", "--orphan-grace=10s")
	foreign := s.createServices()
	s.until(patience, func() error {
		return initialised(getNode(t, s.client, "node-1"), simtest.Server1ID,
			"203.0.113.2")
	})

	s.checkShared()
	s.order()
	s.checkBrought()
	kept := s.published(s.space, "kept")
	s.checkAnnounced("kept", kept)
	s.checkClass()
	s.checkControlPlane()
	s.published(s.space, "turned")
	ordered := s.checkOrder()
	s.checkNetwork()
	if bought := s.bought(); bought != 6 {
		t.Errorf("%d blocks were bought, want 6: for the pool, the order, and of kept, classed, turned and the "+
			"control plane one each", bought)
	}
	drifted := s.drift()
	s.turn()
	s.retain(kept)
	s.rotate(first)
	s.outage(first)
	s.checkOrphan()
	s.checkAbandoned()
	s.vanishes(patience, ordered)
	s.forgotten(orderName)
	s.checkDrift(drifted)
	s.until(patience, func() error { return member(getNode(t, s.client, "node-3"), "203.0.113.") })
	s.checkMetrics(first)
	first.end()
	s.discreet(first)

	s.sim.ClientRestarted(newClientID)
	t.Setenv("PNAP_CLIENT_ID", newClientID)
	t.Setenv("PNAP_CLIENT_SECRET", newSecret)
	second := startReplica(t, "second", s.url, nil, "--service-node-selector=public=true", "--manage-membership",
		"--node-address=none")
	s.unforced()
	s.leaveNothing(foreign)
	s.checkForced()
	second.end()
	s.discreet(second)
	checkGrants(t, audited(t, began), map[string]string{
		"list nodes":   "informers list by a watch where the API server can do that; older ones cannot",
		"get nodes":    "read before a Node is deleted",
		"delete nodes": "that a server is gone is believed after more than a minute of looks",
		"bind roles.rbac.authorization.k8s.io phoenixnap:announce-addresses in kube-system": "the API server asks " +
			"for it when the RoleBinding is updated",
		"list endpointslices.discovery.k8s.io": "asked a minute after a Service of the class phoenixnap.com/ccm was " +
			"published, when kube-vip has not taken it up",
	})
}

// createServices creates Services of all kinds; one has another class.
func (s *scene) createServices() (foreign *corev1.Service) {
	s.Helper()
	for _, name := range []string{"shared-a", "shared-b", "shared-c"} {
		s.service(name, "", contract.ServiceIPAllocation, contract.AllocationShared)
	}
	s.service("kept", "", contract.ServiceIPRetain, "true")
	s.service("brought", "", contract.ServiceIPBlock, broughtObject)
	s.service("requested", "", contract.ServiceIPBlock, broughtObject, contract.ServiceRequestedIP, requested)
	s.service("classed", contract.LoadBalancerClass)
	s.service("turned", "")
	foreign = s.service("foreign", "example.com/other")
	s.patch("foreign", `{"metadata":{"finalizers":["`+foreignFinalizer+`"]}}`)
	return s.get(s.space, foreign.Name)
}

// checkShared: three Services share one block; what one of them released is in quarantine, and no Service gets it.
func (s *scene) checkShared() {
	s.Helper()
	a := s.published(s.space, "shared-a")
	b := s.published(s.space, "shared-b")
	c := s.published(s.space, "shared-c")
	pool := s.blockOf("shared-a")
	for _, name := range []string{"shared-b", "shared-c"} {
		if other := s.blockOf(name); other.id != pool.id {
			s.Errorf("%s has block %s, shared-a has %s", name, other.cidr, pool.cidr)
		}
	}
	if a == b || b == c || a == c || pool.tags[contract.TagPool] != v1beta1.DefaultNetwork {
		s.Errorf("addresses %s, %s, %s of block %v", a, b, c, pool)
	}
	s.delete("shared-b")
	s.gone(s.space, "shared-b")
	kept, err := allocation.NewStore(plane.IPBlocks(), nil).Get(s.Context(), pool.id)
	s.ok(err)
	if rest := kept.Quarantined[b]; rest.Holder.Name != "shared-b" || len(kept.Held) != 2 {
		s.Errorf("%s does not rest: %+v", b, kept)
	}
	s.service("shared-d", "", contract.ServiceIPAllocation, contract.AllocationShared)
	if d := s.published(s.space, "shared-d"); d == a || d == b || d == c || s.blockOf("shared-d").id != pool.id {
		s.Errorf("shared-d has %s, which is taken or quarantined, or is in another block than %s", d, pool.cidr)
	}
}

// checkBrought: two Services share the block that the user brought, one of them at the address that it asked for.
func (s *scene) checkBrought() {
	s.Helper()
	if got := s.published(s.space, "requested"); got.String() != requested {
		s.Errorf("requested %s, got %s", requested, got)
	}
	if got := s.published(s.space, "brought"); !netip.MustParsePrefix(broughtCIDR).Contains(got) ||
		got.String() == requested {
		s.Errorf("%s of the brought block %s", got, broughtCIDR)
	}
	if object := s.broughtObject(); object.Status.Used != "2/5" {
		s.Errorf("the user's IPBlock says %+v", object.Status)
	}
}

func (s *scene) broughtObject() *v1beta1.IPBlock {
	s.Helper()
	object, err := plane.IPBlocks().Get(s.Context(), broughtObject, metav1.GetOptions{})
	s.ok(err)
	return object
}

// checkClass: Services of our class are held by our own finalizer.
func (s *scene) checkClass() {
	s.Helper()
	s.published(s.space, "classed")
	if got := s.get(s.space, "classed").Finalizers; len(got) != 1 || got[0] != contract.LoadBalancerFinalizer {
		s.Errorf("finalizers %q, want only %s", got, contract.LoadBalancerFinalizer)
	}
}

// checkControlPlane: the endpoint has an address, leads to the API server, and says what it knows of its certificate.
func (s *scene) checkControlPlane() {
	s.Helper()
	address := s.published(metav1.NamespaceSystem, apiserver.ServiceName)
	endpoints, err := s.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(s.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + apiserver.ServiceName})
	s.ok(err)
	if len(endpoints.Items) != 1 || endpoints.Items[0].Endpoints[0].Addresses[0] != advertised() {
		s.Errorf("the endpoint leads to %+v, want %s", endpoints.Items, advertised())
	}
	s.event(patience, "Service", apiserver.ServiceName, "CertificateNotChecked", "--tls-san="+address.String())
	s.restoreControlPlane(endpoints.Items[0])
}

// restoreControlPlane: foreign changes of the endpoint are reverted.
func (s *scene) restoreControlPlane(slice discoveryv1.EndpointSlice) {
	s.Helper()
	services := s.client.CoreV1().Services(metav1.NamespaceSystem)
	slices := s.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	_, err := services.Patch(s.Context(), apiserver.ServiceName, types.MergePatchType,
		[]byte(`{"spec":{"selector":{"app":"other"}}}`), metav1.PatchOptions{})
	s.ok(err)
	slice.Endpoints[0].Addresses[0] = "192.0.2.99"
	_, err = slices.Update(s.Context(), &slice, metav1.UpdateOptions{})
	s.ok(err)
	s.until(patience, func() error {
		if got := s.get(metav1.NamespaceSystem, apiserver.ServiceName).Spec.Selector; len(got) > 0 {
			return fmt.Errorf("the Service selects %v", got)
		}
		got, err := slices.Get(s.Context(), slice.Name, metav1.GetOptions{})
		if err == nil && got.Endpoints[0].Addresses[0] != advertised() {
			err = fmt.Errorf("the endpoint leads to %v", got.Endpoints)
		}
		return err
	})
}

// turn: a Service that becomes another type loses address, annotations, finalizer and block.
func (s *scene) turn() {
	s.Helper()
	s.published(s.space, "turned")
	before := s.blockOf("turned")
	s.patch("turned", `{"spec":{"type":"ClusterIP"}}`)
	s.until(patience, func() error {
		service := s.get(s.space, "turned")
		if len(service.Status.LoadBalancer.Ingress)+len(service.Finalizers)+len(service.Annotations)+len(
			service.Status.Conditions) > 0 {
			return fmt.Errorf("left are %+v, %v, %v", service.Status, service.Finalizers, service.Annotations)
		}
		return nil
	})
	s.vanishes(patience, before.id)
}

// retain: the block outlives its Service, and the next one of the name has it.
func (s *scene) retain(address netip.Addr) {
	s.Helper()
	before := s.blockOf("kept")
	s.delete("kept")
	s.gone(s.space, "kept")
	if b, err := s.find(before.id); err != nil || b.status != string(network.Unassigned) ||
		b.tags[contract.TagRetain] != contract.TagTrue {
		s.Errorf("the retained block: %+v, %v", b, err)
	}
	s.service("kept", "", contract.ServiceIPRetain, "true")
	if again := s.published(s.space, "kept"); again != address {
		s.Errorf("the next Service of the name has %s, want %s", again, address)
	}
}

// rotate: other credentials come into the file and the old ones are revoked, while the process runs.
func (s *scene) rotate(p *process) {
	s.Helper()
	p.configure(newClientID, newSecret)
	s.ok(s.sim.Arm(pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusUnauthorized, Client: simtest.ClientID,
		Times: -1}))
	s.sim.RevokeTokens(simtest.ClientID)
	s.service("rotated", "")
	s.published(s.space, "rotated")
	log := s.sim.Log(0)
	for i := len(log) - 1; i >= 0; i-- {
		if log[i].Operation == buyBlock {
			if log[i].Client != newClientID {
				s.Errorf("the block was bought as %s", log[i].Client)
			}
			break
		}
	}
}

// outage: the API is down for a while. The process stays healthy, says what ails, and goes on when it is back.
func (s *scene) outage(p *process) {
	s.Helper()
	s.sim.Disarm()
	s.ok(s.sim.Arm(pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusServiceUnavailable, Times: -1}))
	s.service("patient", "")
	s.until(patience, func() error {
		if status, text := p.detail(); status != http.StatusInternalServerError {
			return fmt.Errorf("the detail is %d %s", status, text)
		}
		return p.healthy()
	})
	if ingress := s.get(s.space, "patient").Status.LoadBalancer.Ingress; len(ingress) > 0 {
		s.Errorf("it has %v", ingress)
	}
	s.sim.Disarm()
	s.published(s.space, "patient")
}

// drift unassigns a block in the portal.
func (s *scene) drift() block {
	s.Helper()
	lost := s.blockOf("classed")
	s.ok(s.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: lost.id}))
	return lost
}

// checkDrift: that block is assigned again, and the address has not changed.
func (s *scene) checkDrift(lost block) {
	s.Helper()
	s.until(patience, func() error {
		if b, err := s.find(lost.id); err != nil || b.status != string(network.Assigned) {
			return fmt.Errorf("the block that was unassigned: %+v, %w", b, err)
		}
		return nil
	})
	if address := s.published(s.space, "classed"); !netip.MustParsePrefix(lost.cidr).Contains(address) {
		s.Errorf("the address became %s, not of block %s", address, lost.cidr)
	}
}

// checkOrphan: a block that was bought for a Service which does not exist is reported and collected.
func (s *scene) checkOrphan() {
	s.Helper()
	s.event(patience, "IPBlock", v1beta1.NamePrefix+orphanID, "OrphanedIPBlock", orphanID,
		contract.ServiceTag(s.space, "forgotten"))
	s.vanishes(patience, orphanID)
	s.event(patience, "Namespace", metav1.NamespaceSystem, "OrphanCollected", orphanID)
}

// checkAbandoned: a block that outlives its Service is shown in an IPBlock, and goes with that.
func (s *scene) checkAbandoned() {
	s.Helper()
	name := v1beta1.NamePrefix + abandonedID
	s.until(patience, func() error {
		object, err := plane.IPBlocks().Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionReady)
		if ready == nil || ready.Reason != v1beta1.AssignedRetained ||
			!strings.Contains(ready.Message, "archive/abandoned") {
			return fmt.Errorf("the IPBlock is %+v", object)
		}
		return nil
	})
	_, err := plane.IPBlocks().Patch(s.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+contract.AllowRelease+`":"true"}}}`), metav1.PatchOptions{})
	s.ok(err)
	s.ok(plane.IPBlocks().Delete(s.Context(), name, metav1.DeleteOptions{}))
	s.vanishes(patience, abandonedID)
	s.forgotten(name)
}

// forgotten waits until an IPBlock that was deleted is gone.
func (s *scene) forgotten(name string) {
	s.Helper()
	s.until(patience, func() error {
		if object, err := plane.IPBlocks().Get(s.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the IPBlock is %+v, %w", object, err)
		}
		return nil
	})
}

// orderName is the IPBlock with which a person orders a shared block.
const orderName = "extra"

func (s *scene) order() {
	s.Helper()
	_, err := plane.IPBlocks().Create(s.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: orderName},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared, Size: "/30"}}, metav1.CreateOptions{})
	s.ok(err)
}

// checkOrder: the block is bought and assigned without a Service, and says so. Then the person gives it up.
func (s *scene) checkOrder() (bought string) {
	s.Helper()
	s.until(2*patience, func() error {
		object, err := plane.IPBlocks().Get(s.Context(), orderName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(object.Status.Conditions, v1beta1.ConditionAssigned) ||
			!slices.Contains(object.Finalizers, contract.IPBlockFinalizer) {
			return fmt.Errorf("the order is %+v", object)
		}
		bought = object.Spec.BlockID
		return nil
	})
	if b, err := s.find(bought); err != nil || !strings.HasSuffix(b.cidr, "/30") ||
		b.tags[contract.TagPool] != v1beta1.DefaultNetwork {
		s.Errorf("the ordered block is %+v, %v", b, err)
	}
	s.event(patience, "IPBlock", orderName, "IPBlockBought", bought)
	s.event(patience, "IPBlock", orderName, "IPBlockAssigned")
	s.ok(plane.IPBlocks().Delete(s.Context(), orderName, metav1.DeleteOptions{}))
	return bought
}

// unforced: as long as servers get addresses, none joins by force. Then another one comes.
func (s *scene) unforced() {
	s.Helper()
	if all, forced := s.joins(); all != 1 || forced != 0 {
		s.Errorf("%d servers were asked to join, %d by force, want 1 and 0", all, forced)
	}
	s.node("node-5")
}

// checkForced: without an address of its own a server joins by force.
func (s *scene) checkForced() {
	s.Helper()
	s.event(patience, "Node", "node-5", "PublicNetworkJoined")
	if node := getNode(s.T, s.client, "node-5"); node.Annotations[contract.NodeMembershipManaged] != "default" {
		s.Errorf("annotations %v", node.Annotations)
	}
	if all, forced := s.joins(); all != 2 || forced != 1 {
		s.Errorf("%d servers were asked to join, %d by force, want 2 and 1", all, forced)
	}
}

// bought is how many blocks were bought.
func (s *scene) bought() int { return s.sim.Counters()[buyBlock][http.StatusCreated] }

// leaveNothing releases everything; the control-plane endpoint goes with its option, the Service of another class
// stays as it was.
func (s *scene) leaveNothing(foreign *corev1.Service) {
	s.Helper()
	retained := s.blockOf("kept")
	s.patch("kept", `{"metadata":{"annotations":{"`+contract.ServiceIPRetain+`":null}}}`)
	s.until(patience, func() error {
		if b, err := s.find(retained.id); err != nil || b.tags[contract.TagRetain] != "" {
			return fmt.Errorf("the block that is not to be retained any more: %+v, %w", b, err)
		}
		return nil
	})
	all := []string{"shared-a", "shared-c", "shared-d", "kept", "brought", "requested", "classed", "rotated", "patient"}
	s.delete(append(all, "turned")...)
	s.gone(s.space, all...)
	s.gone(metav1.NamespaceSystem, apiserver.ServiceName)
	if now := s.get(s.space, foreign.Name); now.ResourceVersion != foreign.ResourceVersion {
		s.Errorf("the Service of another class was changed: %+v", now)
	}
	s.patch("foreign", `{"metadata":{"finalizers":null}}`)
	s.delete("foreign")
	for _, id := range []string{simtest.ClientID, newClientID} {
		if left := s.sim.LeakCheck(id); len(left) > 0 {
			s.Errorf("left in the account: %v", left)
		}
	}
	if b, err := s.find(broughtID); err != nil || b.status != string(network.Unassigned) || len(b.tags) != 0 {
		s.Errorf("the brought block: %+v, %v", b, err)
	}
	if held := s.broughtObject().Status.Allocations; held != nil && len(*held) > 0 {
		s.Errorf("the user's IPBlock still says %+v", *held)
	}
	if bought := s.bought(); bought != 8 {
		s.Errorf("%d blocks were bought, want 7", bought)
	}
}
