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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
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
func (r *rig) create(s *corev1.Service, servers ...string) {
	r.Helper()
	if len(servers) == 0 {
		servers = []string{r.Servers[0].Name, r.Servers[1].Name}
	}
	r.endpoints(s, servers...)
	_, err := r.Kube.CoreV1().Services(s.Namespace).Create(r.Context(), s, metav1.CreateOptions{})
	r.must("create Service "+s.Name, err)
}

// endpoints makes the backends of servers those of a Service, as the endpoint slice controller would.
func (r *rig) endpoints(s *corev1.Service, servers ...string) {
	r.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name),
			Port: ptr.To(p.TargetPort.IntVal), Protocol: ptr.To(p.Protocol)})
	}
	for _, server := range r.Servers {
		if slices.Contains(servers, server.Name) {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{server.PodAddress().String()}, NodeName: ptr.To(server.Name),
				// All three, as from the endpoint slice controller: kube-vip v1.0.0 assumes that "serving" is set.
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
					Terminating: ptr.To(false)},
			})
		}
	}
	all := r.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	_, err := all.Update(r.Context(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(r.Context(), slice, metav1.CreateOptions{})
	}
	r.must("endpoints of Service "+s.Name, err)
}

// get reads a Service.
func (r *rig) get(name string) *corev1.Service {
	r.Helper()
	s, err := r.Kube.CoreV1().Services(cluster.Namespace).Get(r.Context(), name, metav1.GetOptions{})
	r.must("read Service "+name, err)
	return s
}

// patch changes a Service as kubectl patch --type=merge does.
func (r *rig) patch(name string, changes map[string]any) {
	r.Helper()
	_, err := r.patched(name, changes)
	r.must("change Service "+name, err)
}

func (r *rig) patched(name string, changes map[string]any) (*corev1.Service, error) {
	raw, err := json.Marshal(changes)
	r.must("encode a change", err)
	return r.Kube.CoreV1().Services(cluster.Namespace).Patch(r.Context(), name, types.MergePatchType, raw,
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
func (r *rig) published(name string) netip.Addr {
	r.Helper()
	return r.publishedAs(name, netip.Addr.IsValid)
}

// publishedAs waits until a Service has the address that is wanted.
func (r *rig) publishedAs(name string, wanted func(netip.Addr) bool) netip.Addr {
	r.Helper()
	address := publishedIn(r, r.Kube, name, wanted)
	r.claim(ccm, name, r.blockOf(r.get(name)), address)
	return address
}

func publishedIn(r *rig, kube kubernetes.Interface, name string, wanted func(netip.Addr) bool) netip.Addr {
	r.Helper()
	var address netip.Addr
	r.until(publishLimit, "Service "+name+" has its address", func() (bool, string) {
		s, err := kube.CoreV1().Services(cluster.Namespace).Get(r.Context(), name, metav1.GetOptions{})
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
func (r *rig) claim(by, service string, block cluster.AccountBlock, address netip.Addr) {
	r.Helper()
	r.must("report what is published", r.Sim.Claim(r.Context(), pnapsim.Claim{
		Client: by, Kind: pnapsim.ClaimPublished, Block: block.ID, Address: address.String(),
		Service: by + "/" + service,
	}))
}

// withdraw informs the simulator that the address of a Service is no longer published.
func (r *rig) withdraw(by, service string) {
	r.Helper()
	r.must("report what is withdrawn", r.Sim.Claim(r.Context(), pnapsim.Claim{
		Client: by, Kind: pnapsim.ClaimWithdrawn, Service: by + "/" + service,
	}))
}

// blockOf is the block that a Service names as the source of its address.
func (r *rig) blockOf(s *corev1.Service) cluster.AccountBlock {
	r.Helper()
	for _, b := range r.blocks() {
		if b.CIDR == s.Annotations[contract.ServiceIPBlock] {
			return b
		}
	}
	r.Fatalf("Service %s: the account holds no block %q", s.Name, s.Annotations[contract.ServiceIPBlock])
	return cluster.AccountBlock{}
}

// blocks are those of the account.
func (r *rig) blocks() []cluster.AccountBlock {
	r.Helper()
	state, err := r.Sim.State(r.Context())
	r.must("read the account", err)
	return state.Blocks
}

// remove deletes a Service and its endpoints without waiting for the end.
func (r *rig) remove(name string) {
	r.Helper()
	r.withdraw(ccm, name)
	r.must("delete Service "+name, r.Kube.CoreV1().Services(cluster.Namespace).Delete(r.Context(), name,
		metav1.DeleteOptions{}))
	err := r.Kube.DiscoveryV1().EndpointSlices(cluster.Namespace).Delete(r.Context(), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		r.must("delete the endpoints of Service "+name, err)
	}
}

// removed waits until a Service is gone.
func (r *rig) removed(name string) time.Duration {
	r.Helper()
	return goneFrom(r, r.Kube, name)
}

func goneFrom(r *rig, kube kubernetes.Interface, name string) time.Duration {
	r.Helper()
	return r.until(publishLimit, "Service "+name+" is gone", func() (bool, string) {
		s, err := kube.CoreV1().Services(cluster.Namespace).Get(r.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		return false, fmt.Sprintf("%v, %v", s.Status.Conditions, err)
	})
}

// holder is the server whose hardware address the gateway has for an address; empty when it has none.
func (r *rig) holder(ctx context.Context, address netip.Addr) (string, error) {
	neighbours, err := r.Lab.Neighbours(ctx, "gateway")
	if err != nil {
		return "", fmt.Errorf("ARP table of the gateway: %w", err)
	}
	for _, s := range r.Servers {
		mac, err := r.Lab.ReadFile(ctx, s.Name, "/sys/class/net/"+cluster.PublicInterface+"/address")
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
