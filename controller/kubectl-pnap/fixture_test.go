package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// IDs of blocks.
const (
	webBlock      = "6047127fed34ecc3ba8402d3"
	poolBlock     = "6047127fed34ecc3ba8402d4"
	orphanBlock   = "6047127fed34ecc3ba8402d5"
	broughtBlock  = "6047127fed34ecc3ba8402d6"
	retainedBlock = "6047127fed34ecc3ba8402d7"
	macA          = "02:00:00:00:00:0a"
)

// fixture is a running cluster: a real API server with the objects that the controller and the agents would have
// written; what IPBlocks say of the account, the controller's own code writes.
type fixture struct {
	*testing.T
	kube kubernetes.Interface
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	s := fixture{T: t, kube: admin(t)}
	s.namespace("shop")
	s.nodes()
	s.services()
	s.ledgers()
	s.showBlocks()
	s.network()
	s.lease("ccm-0_1a2b", now().Add(-2*time.Second))
	s.unpulledAgent("srv-c")
	t.Cleanup(s.clear)
	return s
}

func (s fixture) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s fixture) namespace(name string) {
	s.Helper()
	_, err := s.kube.CoreV1().Namespaces().Create(s.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		s.Fatal(err)
	}
}

// nodes creates three Nodes: a healthy one that announces, a broken one, and one without an agent.
func (s fixture) nodes() {
	s.Helper()
	reported, err := contract.ReportedAddresses{addr("203.0.113.18"): {State: contract.AddressAnswered, MAC: macA,
		Held: true, Since: now().Add(-time.Hour)}}.Encode()
	s.ok(err)
	s.node("srv-a", simtest.Server1ID, map[string]string{contract.NodeReportedAddresses: reported}, true,
		condition(contract.ConditionVLANReady, "True", "Ready", "the node can carry traffic of the public network"),
		condition(contract.ConditionAnnouncementHealthy, "True", "Answered", "1 address answers"))
	s.node("srv-b", simtest.Server2ID, nil, true,
		condition(contract.ConditionVLANReady, "False", "VLANInterfaceDown", "PN103: bond0.20 is down"),
		condition(contract.ConditionAnnouncementHealthy, "Unknown", "VLANNotReady",
			"the node cannot check addresses while its VLAN is not ready"))
	s.node("srv-c", "", nil, false)
}

func condition(kind corev1.NodeConditionType, status, reason, message string) corev1.NodeCondition {
	at := metav1.NewTime(now().Add(-10 * time.Minute))
	return corev1.NodeCondition{Type: kind, Status: corev1.ConditionStatus(status), Reason: reason, Message: message,
		LastTransitionTime: at, LastHeartbeatTime: at}
}

func (s fixture) node(name, serverID string, annotations map[string]string, member bool,
	conditions ...corev1.NodeCondition) {
	s.Helper()
	all := nodenet.On(contract.NodeNetwork{
		ServerID: serverID, ID: simtest.NetworkID, VLAN: 20, Member: member,
		Announcer: contract.AnnouncerKubeVIP,
	})
	maps.Copy(all, annotations)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: all, Labels: map[string]string{}}}
	if serverID != "" {
		node.Spec.ProviderID = contract.ProviderName + "://" + serverID
	}
	if member && len(conditions) > 0 && conditions[0].Status == corev1.ConditionTrue {
		node.Labels[contract.NodeVLANReady] = contract.TagTrue
	}
	created, err := s.kube.CoreV1().Nodes().Create(s.Context(), node, metav1.CreateOptions{})
	s.ok(err)
	created.Status.Conditions = conditions
	_, err = s.kube.CoreV1().Nodes().UpdateStatus(s.Context(), created, metav1.UpdateOptions{})
	s.ok(err)
}

// services creates Services: one works, one gets no answer, one is rejected, one is new, and one has another class.
func (s fixture) services() {
	s.Helper()
	const (
		blockAssigned = contract.ServiceConditionBlockAssigned
		published     = contract.ServiceConditionAddressPublished
		announced     = contract.ServiceConditionAnnounced
	)
	s.service("web", "203.0.113.18", "203.0.113.16/29", nil, serviceCondition(blockAssigned, "True", "BlockAssigned",
		""), serviceCondition(published, "True", "Published", ""),
		serviceCondition(announced, "True", "Answered", "Node srv-a announces the address since 2026-01-01T02:00:00Z"))
	s.service("api", "203.0.113.27", "203.0.113.24/29", nil, serviceCondition(blockAssigned, "True", "BlockAssigned",
		""), serviceCondition(published, "True", "Published", ""),
		serviceCondition(announced, "False", "Silent", "no node answers for the address (reported by srv-a)"))
	s.service("greedy", "", "", nil, serviceCondition(blockAssigned, "False", "TooManyBlocks",
		"3 IP blocks are bought and --max-ip-blocks allows 3: raise it, or share blocks "+
			"(phoenixnap.com/ip-allocation: shared)"),
		serviceCondition(published, "False", "BlockNotAssigned",
			"the address is published once its IP block is assigned"))
	s.service("foreign", "", "", ptr.To("example.com/other"))
	s.service("young", "", "", nil)
}

func serviceCondition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now().Add(-time.Minute))}
}

func (s fixture) service(name, address, block string, class *string, conditions ...metav1.Condition) {
	s.Helper()
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: class,
			Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if address != "" {
		object.Annotations[contract.ServiceIPAddress] = address
		object.Annotations[contract.ServiceIPBlockCIDR] = block
	}
	created, err := s.kube.CoreV1().Services("shop").Create(s.Context(), object, metav1.CreateOptions{})
	s.ok(err)
	created.Status.Conditions = conditions
	_, err = s.kube.CoreV1().Services("shop").UpdateStatus(s.Context(), created, metav1.UpdateOptions{})
	s.ok(err)
}

func (s fixture) ledgers() {
	s.Helper()
	l, _, err := ipblock.NewLedger(poolBlock, prefix("203.0.113.24/29")).Take(ipblock.Holder{Namespace: "shop",
		Name: "api", UID: "u"}, ipblock.Ask{Now: now()})
	s.ok(err)
	_, err = allocation.NewStore(plane.IPBlocks(), nil).Save(s.Context(), l)
	s.ok(err)
	web, err := plane.IPBlocks().Create(s.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "svc-web"},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeService, Source: v1beta1.SourceBought, BlockID: webBlock,
			ServiceRef: &v1beta1.ServiceReference{Namespace: "shop", Name: "web"}}}, metav1.CreateOptions{})
	s.ok(err)
	web.Status = v1beta1.IPBlockStatus{CIDR: "203.0.113.16/29", Location: "ASH", Used: "1/5",
		Allocations: &[]v1beta1.Allocation{{Address: "203.0.113.18", Since: metav1.NewTime(now()),
			Services: []v1beta1.ServiceReference{{Namespace: "shop", Name: "web"}}}}}
	_, err = plane.IPBlocks().UpdateStatus(s.Context(), web, metav1.UpdateOptions{})
	s.ok(err)
	_, err = plane.IPBlocks().Create(s.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "mine"},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared, Source: v1beta1.SourceBrought,
			BlockID: broughtBlock}}, metav1.CreateOptions{})
	s.ok(err)
}

// showBlocks runs the part of the controller that checks blocks, on an account of the simulator, until it has
// confirmed the suspected orphans.
func (s fixture) showBlocks() {
	s.Helper()
	system, err := s.kube.CoreV1().Namespaces().Get(s.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	s.ok(err)
	clock := pnapsim.NewManualClock(simtest.Start())
	_, url := simtest.New(s.T, pnapsim.Config{Clock: clock},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{accountOf(string(system.UID))}})
	api, err := pnap.New(pnap.Config{BaseURL: url, TokenURL: url + pnap.TokenPath, Now: clock.Now,
		Credentials: func() (string, string, error) {
			return simtest.ClientID, simtest.ClientSecret, nil
		}})
	s.ok(err)
	clock.Advance(3*time.Hour - 2*time.Minute)
	factory := informers.NewSharedInformerFactory(s.kube, 0)
	collector := orphans.New(orphans.Config{
		Account: account.New(account.Config{Cloud: api, Now: clock.Now}), Cloud: api,
		Ledgers: allocation.NewStore(plane.IPBlocks(), nil), Kube: s.kube,
		Services: factory.Core().V1().Services(), Events: record.NewFakeRecorder(100),
		Metrics: orphans.NewMetrics(), Network: network.Named{Name: v1beta1.DefaultNetwork, ID: simtest.NetworkID},
		Now: clock.Now,
	})
	for range 2 {
		_, err = collector.Look(s.Context())
		s.ok(err)
		clock.Advance(time.Minute)
	}
}

// network creates the object of the public network, as the controller has it.
func (s fixture) network() {
	s.Helper()
	networks, err := client.NewPublicNetworks(plane.Config())
	s.ok(err)
	object, err := networks.Create(s.Context(), &v1beta1.PublicNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.DefaultNetwork},
		Spec: v1beta1.PublicNetworkSpec{ID: simtest.NetworkID, Announcer: v1beta1.AnnouncerKubeVIP,
			IPBlocks: v1beta1.IPBlockPolicy{Maximum: ptr.To(int32(3))}}}, metav1.CreateOptions{})
	s.ok(err)
	s.Cleanup(func() {
		s.ok(networks.Delete(context.WithoutCancel(s.Context()), object.Name, metav1.DeleteOptions{}))
	})
	object.Status = v1beta1.PublicNetworkStatus{Location: "ASH", VLAN: 20, IPv4Blocks: 3, IPv4BlockLimit: 10,
		Blocks: "3/10", AccountReadTime: ptr.To(metav1.NewTime(now().Add(-time.Minute)))}
	_, err = networks.UpdateStatus(s.Context(), object, metav1.UpdateOptions{})
	s.ok(err)
}

func accountOf(cluster string) pnapsim.AccountSeed {
	tagged := func(more ...string) map[string]string {
		tags := map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: cluster}
		for i := 0; i < len(more); i += 2 {
			tags[more[i]] = more[i+1]
		}
		return tags
	}
	seed := simtest.Account()
	seed.Blocks = append(seed.Blocks,
		pnapsim.BlockSeed{ID: webBlock, Location: "ASH", CIDR: "203.0.113.16/29", Network: simtest.NetworkID,
			Tags: tagged(contract.TagService, "shop_web")},
		pnapsim.BlockSeed{ID: poolBlock, Location: "ASH", CIDR: "203.0.113.24/29", Network: simtest.NetworkID,
			Tags: tagged(contract.TagPool, v1beta1.DefaultNetwork)},
		pnapsim.BlockSeed{ID: orphanBlock, Location: "ASH", CIDR: "203.0.113.32/29",
			Tags: tagged(contract.TagService, "shop_forgotten")},
		pnapsim.BlockSeed{ID: broughtBlock, Location: "ASH", CIDR: "203.0.113.40/29"},
		pnapsim.BlockSeed{ID: retainedBlock, Location: "ASH", CIDR: "203.0.113.48/29",
			Tags: tagged(contract.TagService, "shop_kept", contract.TagRetain, contract.TagTrue)},
	)
	return seed
}

// unpulledAgent creates the pod of an agent whose image cannot be pulled.
func (s fixture) unpulledAgent(node string) {
	s.Helper()
	s.agentPod(node, corev1.PodPending, 0)
	pods := s.kube.CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Get(s.Context(), "phoenixnap-agent-"+node, metav1.GetOptions{})
	s.ok(err)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", Image: "phoenixnap/phoenixnap-agent:v2",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
			Message: "manifest unknown"}}}}
	_, err = pods.UpdateStatus(s.Context(), pod, metav1.UpdateOptions{})
	s.ok(err)
}

func (s fixture) lease(holder string, renewed time.Time) {
	s.Helper()
	at := metav1.NewMicroTime(renewed)
	_, err := s.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Create(s.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "phoenixnap-cloud-controller-manager"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at,
			LeaseDurationSeconds: ptr.To(int32(15))},
	}, metav1.CreateOptions{})
	s.ok(err)
}

// clear removes all objects, so that tests do not affect each other.
func (s fixture) clear() {
	ctx := context.WithoutCancel(s.Context())
	everything := metav1.ListOptions{}
	nodes, err := s.kube.CoreV1().Nodes().List(ctx, everything)
	s.ok(err)
	for _, n := range nodes.Items {
		s.ok(s.kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}))
	}
	services, err := s.kube.CoreV1().Services("shop").List(ctx, everything)
	s.ok(err)
	for _, each := range services.Items {
		s.ok(s.kube.CoreV1().Services("shop").Delete(ctx, each.Name, metav1.DeleteOptions{}))
	}
	configMaps, err := s.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx, everything)
	s.ok(err)
	for _, each := range slices.DeleteFunc(configMaps.Items,
		func(c corev1.ConfigMap) bool { return !strings.HasPrefix(c.Name, "phoenixnap-") }) {
		s.ok(s.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(ctx, each.Name, metav1.DeleteOptions{}))
	}
	blocks, err := plane.IPBlocks().List(ctx, everything)
	s.ok(err)
	for _, each := range blocks.Items {
		s.ok(controlplane.ForgetIPBlock(ctx, plane.IPBlocks(), each.Name))
	}
	s.ok(s.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "phoenixnap-cloud-controller-manager",
		metav1.DeleteOptions{}))
}

// deploy returns the path of a shipped manifest.
func deploy(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "deploy"}, path...)...)
}
