//go:build linux

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// ccm is the API client of the cluster's controller.
const ccm = "ccm"

// publishLimit is how long a Service may wait for its address while others wait too.
const publishLimit = answerLimit

// change alters a Service before it is created.
type change func(*corev1.Service)

// loadBalancer is a Service of type LoadBalancer with one port for HTTP, as changed.
func loadBalancer(name string, changes ...change) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{port("http", corev1.ProtocolTCP, 80, cluster.BackendPort)},
		},
	}
	for _, c := range changes {
		c(s)
	}
	return s
}

func port(name string, protocol corev1.Protocol, number, target int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: number, TargetPort: intstr.FromInt32(target)}
}

func annotated(pairs ...string) change {
	return func(s *corev1.Service) {
		for pair := range slices.Chunk(pairs, 2) {
			s.Annotations[pair[0]] = pair[1]
		}
	}
}

func shared() change { return annotated(contract.ServiceIPAllocation, contract.AllocationShared) }

func ports(all ...corev1.ServicePort) change {
	return func(s *corev1.Service) { s.Spec.Ports = all }
}

// create creates a Service with backends on servers; without names on all that are members from the start.
func (h *harness) create(s *corev1.Service, servers ...string) {
	h.Helper()
	if len(servers) == 0 {
		servers = []string{h.Servers[0].Name, h.Servers[1].Name}
	}
	h.endpoints(s, servers...)
	_, err := h.Kube.CoreV1().Services(s.Namespace).Create(h.Context(), s, metav1.CreateOptions{})
	h.must("create Service "+s.Name, err)
}

// endpoints makes the backends of servers those of a Service, as the endpoint slice controller would.
func (h *harness) endpoints(s *corev1.Service, servers ...string) {
	h.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name),
			Port: ptr.To(p.TargetPort.IntVal), Protocol: ptr.To(p.Protocol)})
	}
	for _, server := range h.Servers {
		if slices.Contains(servers, server.Name) {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{server.PodAddress().String()}, NodeName: ptr.To(server.Name),
				// All three, as from the endpoint slice controller: kube-vip v1.0.0 assumes that "serving" is set.
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
					Terminating: ptr.To(false)},
			})
		}
	}
	all := h.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	_, err := all.Update(h.Context(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(h.Context(), slice, metav1.CreateOptions{})
	}
	h.must("endpoints of Service "+s.Name, err)
}

// get reads a Service.
func (h *harness) get(name string) *corev1.Service {
	h.Helper()
	s, err := h.Kube.CoreV1().Services(cluster.Namespace).Get(h.Context(), name, metav1.GetOptions{})
	h.must("read Service "+name, err)
	return s
}

// patch changes a Service as kubectl patch --type=merge does.
func (h *harness) patch(name string, changes map[string]any) {
	h.Helper()
	_, err := h.patched(name, changes)
	h.must("change Service "+name, err)
}

func (h *harness) patched(name string, changes map[string]any) (*corev1.Service, error) {
	raw, err := json.Marshal(changes)
	h.must("encode a change", err)
	return h.Kube.CoreV1().Services(cluster.Namespace).Patch(h.Context(), name, types.MergePatchType, raw,
		metav1.PatchOptions{})
}

// spec and annotation are changes for patch.
func spec(field string, value any) map[string]any {
	return map[string]any{"spec": map[string]any{field: value}}
}

func annotation(name string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}}
}

// publishedAddress is the address in the status of a Service, the zero value while there is none.
func publishedAddress(s *corev1.Service) netip.Addr {
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// published waits until a Service has an address and lets the simulator judge that publication.
func (h *harness) published(name string) netip.Addr {
	h.Helper()
	return h.publishedAs(name, netip.Addr.IsValid)
}

// publishedAs waits until a Service has the address that is wanted.
func (h *harness) publishedAs(name string, wanted func(netip.Addr) bool) netip.Addr {
	h.Helper()
	address := publishedIn(h, h.Kube, name, wanted)
	h.claim(ccm, name, h.blockOf(h.get(name)), address)
	return address
}

func publishedIn(h *harness, kube kubernetes.Interface, name string, wanted func(netip.Addr) bool) netip.Addr {
	h.Helper()
	var address netip.Addr
	h.until(publishLimit, "Service "+name+" has its address", func() (bool, string) {
		s, err := kube.CoreV1().Services(cluster.Namespace).Get(h.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		address = publishedAddress(s)
		// kube-vip writes what an author asked for into the status by itself; the annotation is the controller's word.
		ours := s.Annotations[contract.ServiceIPAddress] == address.String()
		return address.IsValid() && ours && wanted(address), fmt.Sprintf("%v", s.Status)
	})
	return address
}

// claim informs the simulator that an address is published.
func (h *harness) claim(by, service string, block cluster.AccountBlock, address netip.Addr) {
	h.Helper()
	h.must("report what is published", h.Sim.Claim(h.Context(), pnapsim.Claim{
		Client: by, Kind: pnapsim.ClaimPublished, Block: block.ID, Address: address.String(),
		Service: by + "/" + service,
	}))
}

// withdraw informs the simulator that the address of a Service is no longer published.
func (h *harness) withdraw(by, service string) {
	h.Helper()
	h.must("report what is withdrawn", h.Sim.Claim(h.Context(), pnapsim.Claim{
		Client: by, Kind: pnapsim.ClaimWithdrawn, Service: by + "/" + service,
	}))
}

// blockOf is the block that a Service names as the source of its address.
func (h *harness) blockOf(s *corev1.Service) cluster.AccountBlock {
	h.Helper()
	for _, b := range h.blocks() {
		if b.CIDR == s.Annotations[contract.ServiceIPBlockCIDR] {
			return b
		}
	}
	h.Fatalf("Service %s: the account holds no block %q", s.Name, s.Annotations[contract.ServiceIPBlockCIDR])
	return cluster.AccountBlock{}
}

// blocks are those of the account.
func (h *harness) blocks() []cluster.AccountBlock {
	h.Helper()
	state, err := h.Sim.State(h.Context())
	h.must("read the account", err)
	return state.Blocks
}

// remove deletes a Service and its endpoints without waiting for the end.
func (h *harness) remove(name string) {
	h.Helper()
	h.withdraw(ccm, name)
	h.must("delete Service "+name, h.Kube.CoreV1().Services(cluster.Namespace).Delete(h.Context(), name,
		metav1.DeleteOptions{}))
	err := h.Kube.DiscoveryV1().EndpointSlices(cluster.Namespace).Delete(h.Context(), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		h.must("delete the endpoints of Service "+name, err)
	}
}

// removed waits until a Service is gone.
func (h *harness) removed(name string) time.Duration {
	h.Helper()
	return goneFrom(h, h.Kube, name)
}

func goneFrom(h *harness, kube kubernetes.Interface, name string) time.Duration {
	h.Helper()
	return h.until(publishLimit, "Service "+name+" is gone", func() (bool, string) {
		s, err := kube.CoreV1().Services(cluster.Namespace).Get(h.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		return false, fmt.Sprintf("%v, %v", s.Status.Conditions, err)
	})
}

// holder is the server whose hardware address the gateway has for an address; empty when it has none.
func (h *harness) holder(ctx context.Context, address netip.Addr) (string, error) {
	neighbours, err := h.Lab.Neighbours(ctx, "gateway")
	if err != nil {
		return "", fmt.Errorf("ARP table of the gateway: %w", err)
	}
	for _, s := range h.Servers {
		mac, err := h.Lab.ReadFile(ctx, s.Name, "/sys/class/net/"+cluster.PublicInterface+"/address")
		if err != nil {
			continue // a server that is gone has no interface
		}
		for _, n := range neighbours {
			if n.IP == address && n.MAC == strings.TrimSpace(string(mac)) {
				return s.Name, nil
			}
		}
	}
	return "", nil
}
