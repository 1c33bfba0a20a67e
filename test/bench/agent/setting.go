//go:build linux

package agent

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// setting is the cluster that the agent is in.
type setting struct {
	Options
	plane *controlplane.ControlPlane
	kube  kubernetes.Interface
}

// start brings up the control plane with Nodes, Services and the rights of the manifests.
func (s *setting) start(ctx context.Context) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{LogDir: s.Dir,
		Names: []string{management.Addr().String()}, Manifests: []string{"deploy/overlays/kubeadm"}})
	if err != nil {
		return err
	}
	s.plane = plane
	s.kube = plane.Kube()
	s.say("creating %d Nodes and %d Services", s.Nodes, s.Services)
	return s.populate(ctx)
}

func (s *setting) stop() error {
	if s.plane == nil {
		return nil
	}
	return s.plane.Stop()
}

// kubeconfig writes the agent's credentials, those of its ServiceAccount.
func (s *setting) kubeconfig(ctx context.Context, url string) (string, error) {
	config, err := s.plane.ServiceAccountOn(ctx, metav1.NamespaceSystem, "phoenixnap-agent", server)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.Dir, "agent.kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config, url)
}

// writers is how many objects are created at a time.
const writers = 32

// populate fills the cluster with Nodes, IP blocks and Services.
func (s *setting) populate(ctx context.Context) error {
	virtual, err := addresses(s.Services)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range s.Nodes {
		group.Go(func() error { return s.createNode(ctx, i) })
	}
	for i, b := range blocks()[1:] {
		group.Go(func() error { return s.createBlock(ctx, i, b, virtual) })
	}
	for i, address := range virtual {
		group.Go(func() error { return s.createService(ctx, i, address) })
	}
	return group.Wait()
}

func (s *setting) createNode(ctx context.Context, i int) error {
	node, err := nodeObject(i)
	if err != nil {
		return err
	}
	if _, err := s.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Node %s: %w", node.Name, err)
	}
	return nil
}

// createBlock creates the IPBlock of a block with addresses of Services, as the controller leaves it.
func (s *setting) createBlock(ctx context.Context, i int, b contract.NetworkBlock, virtual []netip.Addr) error {
	blocks := s.plane.IPBlocks()
	made, err := blocks.Create(ctx, &v1beta1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", v1beta1.SharedPrefix(v1beta1.DefaultNetwork), i+1)},
		Spec:       v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create an IPBlock: %w", err)
	}
	allocations := []v1beta1.Allocation{}
	for n, address := range virtual {
		if b.CIDR.Contains(address) {
			allocations = append(allocations, v1beta1.Allocation{Address: address.String(), Since: metav1.Now(),
				Services: []v1beta1.ServiceReference{{Namespace: metav1.NamespaceDefault, Name: serviceName(n)}}})
		}
	}
	made.Status = v1beta1.IPBlockStatus{CIDR: b.CIDR.String(), Gateway: b.Gateway.String(), Allocations: &allocations,
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue,
			Reason: "BlockAssigned", LastTransitionTime: metav1.Now()}}}
	if _, err := blocks.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("assign IPBlock %s: %w", made.Name, err)
	}
	return nil
}

func serviceName(i int) string { return fmt.Sprintf("web-%03d", i) }

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// nodeMAC is the hardware address of a Node's bond; the lab gives its servers these.
func nodeMAC(i int) string { return fmt.Sprintf("02:50:4e:01:%02x:%02x", (i+1)>>8, (i+1)&0xff) }

// nodeObject is a Node as kubelet, controller and agent write it together, with what makes it large: images and
// addresses.
func nodeObject(i int) (*corev1.Node, error) {
	annotations := nodenet.On(network())
	private := netip.AddrFrom4([4]byte{10, 0, byte((i + 11) >> 8), byte(i + 11)})
	identity, err := json.Marshal(contract.Identity{
		Hostname: nodeName(i), Addresses: []netip.Addr{private}, MACs: []string{nodeMAC(i)},
		VLANInterfaces: map[string]contract.VLANInterface{network().ID: {Name: vlanLink}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the identity of %s: %w", nodeName(i), err)
	}
	annotations[contract.NodeReportedIdentity] = string(identity)
	var node corev1.Node
	err = object(&node, "node", map[string]any{
		"Name": nodeName(i), "Private": private, "Pods": fmt.Sprintf("10.%d.%d.0/24", 100+i>>8, i&0xff), "Now": now(),
		"Conditions": map[string]string{
			"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True",
		},
	})
	node.Annotations = annotations
	return &node, err
}

//go:embed objects.yaml.tpl
var objectsText string

var objects = template.Must(template.New("").Parse(objectsText))

// object reads an object of objects.yaml.tpl.
func object(into any, name string, values map[string]any) error {
	var text bytes.Buffer
	if err := objects.ExecuteTemplate(&text, name, values); err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text.Bytes(), into)
}

// now is the time as objects have it.
func now() string { return time.Now().UTC().Format(metav1.RFC3339Micro) }

// createService creates a Service as controller and kube-vip leave it, and the Lease by which kube-vip elects its
// announcer.
func (s *setting) createService(ctx context.Context, i int, address netip.Addr) error {
	values := map[string]any{"Name": serviceName(i), "Address": address, "Announcer": announcer,
		"Interface": vlanLink, "Now": now()}
	var service corev1.Service
	var lease coordinationv1.Lease
	if err := errors.Join(object(&service, "service", values), object(&lease, "lease", values)); err != nil {
		return err
	}
	services := s.kube.CoreV1().Services(metav1.NamespaceDefault)
	created, err := services.Create(ctx, &service, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a Service: %w", err)
	}
	created.Status = service.Status
	if _, err := services.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("publish the address of Service %s: %w", created.Name, err)
	}
	if _, err := s.kube.CoordinationV1().Leases(metav1.NamespaceDefault).Create(ctx, &lease,
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the Lease of Service %s: %w", created.Name, err)
	}
	return nil
}

// awaitReady waits until the agent reports that the node and the addresses are healthy.
func (s *setting) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		node, err := s.kube.CoreV1().Nodes().Get(ctx, server, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Node %s: %w", server, err)
		}
		said := ""
		for _, kind := range []corev1.NodeConditionType{contract.ConditionVLANReady,
			contract.ConditionAnnouncementHealthy} {
			condition := contract.FindNodeCondition(node, kind)
			switch {
			case condition == nil:
				said += fmt.Sprintf("%s is missing; ", kind)
			case condition.Status != corev1.ConditionTrue:
				said += fmt.Sprintf("%s is %s: %s; ", kind, condition.Status, condition.Message)
			}
		}
		if said == "" {
			return nil
		}
		if err := command.Pause(ctx, time.Second); err != nil {
			return fmt.Errorf("the node does not become healthy: %s%w", said, err)
		}
	}
}

// The node that is measured, the one that announces the addresses of all Services, and the one that asks for them.
const (
	server    = "node-0000"
	announcer = "node-0001"
	client    = "node-0002"
	vlanID    = 56
	vlanLink  = "bond0.56"
	serverID  = "66a1f0c2b5d3e4f5a6b70000"
	networkID = "60473c2509268bc77fd06d29"
)

var (
	ownAddress    = netip.MustParsePrefix("198.18.0.2/26")
	nextAddress   = netip.MustParsePrefix("198.18.0.3/26")
	clientAddress = netip.MustParsePrefix("198.18.0.4/26")
	management    = netip.MustParsePrefix("10.0.0.1/24")
)

// firstBlock is the block of the nodes; those of the Services follow it.
var firstBlock = netip.MustParsePrefix("198.18.0.0/26")

// blocks are the ten that a public network may have at most.
func blocks() []contract.NetworkBlock {
	var all []contract.NetworkBlock
	start := firstBlock.Addr().As4()
	for i := range 10 {
		base := netip.AddrFrom4([4]byte{start[0], start[1], byte(i / 4), byte(i % 4 * 64)})
		all = append(all, contract.NetworkBlock{CIDR: netip.PrefixFrom(base, firstBlock.Bits()), Gateway: base.Next()})
	}
	return all
}

// perBlock is how many addresses of a /26 Services may have: not network, gateway and broadcast address.
const perBlock = 61

// addresses are those of the Services.
func addresses(count int) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, b := range blocks()[1:] {
		address := b.Gateway
		for range perBlock {
			if address = address.Next(); len(all) < count {
				all = append(all, address)
			}
		}
	}
	if len(all) < count {
		return nil, fmt.Errorf("%d Services: the network has room for %d", count, len(all))
	}
	return all, nil
}

// network is what the controller publishes on the Node.
func network() contract.NodeNetwork {
	return contract.NodeNetwork{
		ServerID: serverID, ID: networkID, VLAN: vlanID, Member: true, IPs: []netip.Addr{ownAddress.Addr()},
		Blocks: blocks()[:1], Announcer: contract.AnnouncerKubeVIP,
	}
}
