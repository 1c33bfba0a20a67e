//go:build linux

package speaker

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Inputs is what is known about the node and the cluster.
type Inputs struct {
	// Node is the Node, nil while it is unknown.
	Node *corev1.Node
	// View is that of the last sample; Sampled is false before there was one.
	View    vip.View
	Sampled bool
	// Services are those of the type LoadBalancer; Listed is false before they were listed.
	Services []*corev1.Service
	Listed   bool
	// Allocated reports whether an IPBlock gives an address to a Service.
	Allocated func(service *corev1.Service, address netip.Addr) blocks.Answer
	// Link reports whether the VLAN interface is up.
	Link bool
	// LocalReady reports whether the node has a ready endpoint of the Service with that health check port.
	LocalReady func(port int32) bool
}

// Network is the ID of the public network on which the agents announce; empty when they do not or it is unknown.
func (in Inputs) Network() string {
	if !in.Sampled || in.View.Announcer != contract.AnnouncerAgent || in.View.Expected.Unreadable != "" {
		return ""
	}
	return in.View.Expected.Network.ID
}

// Facts are the input of the election.
func (in Inputs) Facts() election.Facts {
	able := in.Sampled && in.View.Ready && in.Network() != "" && in.Node != nil
	_, err := netip.ParseAddr(in.View.Report.Source)
	willing := in.Node != nil && eligible(in.Node)
	wanted, outside := in.wanted()
	return election.Facts{
		Link: in.Link, Candidate: able && willing, Witness: able && !willing,
		Cordoned:   in.Node != nil && in.Node.Spec.Unschedulable,
		HasGateway: err == nil && len(in.View.Expected.Network.Blocks) > 0,
		Known:      in.Listed && in.Sampled, Wanted: wanted, Outside: outside,
	}
}

// eligible reports whether the Node itself allows that it carries the traffic of load balancers.
func eligible(node *corev1.Node) bool {
	return contract.Carriers{Announcer: contract.AnnouncerAgent}.Barred(node) == contract.Obstacle{}
}

// wanted returns the addresses that must be announced; false where this node cannot serve one. outside has those that
// it must never answer for. That they exist is decided by the Services only: nodes know different addresses of
// machines, and learn of IPBlocks at different times.
func (in Inputs) wanted() (wanted, outside map[netip.Addr]bool) {
	wanted = map[netip.Addr]bool{}
	outside = map[netip.Addr]bool{}
	for _, service := range in.Services {
		address, ok := Address(service)
		if !ok {
			continue
		}
		// Of two Services with one address, either is enough.
		may := in.isGiven(service, address) && in.isKnown(address) && !in.isReserved(address)
		_, seen := wanted[address]
		outside[address] = !may && (!seen || outside[address])
		wanted[address] = wanted[address] || may && in.isServed(service)
	}
	maps.DeleteFunc(outside, func(_ netip.Addr, is bool) bool { return !is })
	return wanted, outside
}

// isGiven reports whether an address is the Service's: an IPBlock says so, which no author of Services can write. While
// that is not known, the status of the Service decides.
func (in Inputs) isGiven(service *corev1.Service, address netip.Addr) bool {
	answer := in.Allocated(service, address)
	return answer == blocks.Allocated || answer == blocks.Unknown && blocks.Published(service, address)
}

// Existing returns the addresses of Services that must be announced, the same on all nodes.
func Existing(services []*corev1.Service) map[netip.Addr]bool {
	exist := map[netip.Addr]bool{}
	for _, service := range services {
		if address, ok := Address(service); ok {
			exist[address] = true
		}
	}
	return exist
}

// isServed reports whether this node can serve a Service.
func (in Inputs) isServed(service *corev1.Service) bool {
	port := localPort(service)
	return port == 0 || in.LocalReady(port)
}

// Address returns the address of a Service that must be announced: written for this Service, and its block assigned.
func Address(service *corev1.Service) (address netip.Addr, ok bool) {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil ||
		service.Annotations[contract.ServiceIPBlockAssigned] != contract.TagTrue || !contract.WrittenForThis(service) {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(service.Annotations[contract.ServiceIPAddress])
	return address, err == nil && address.Is4()
}

// isReserved reports whether an address is this node's own or, in its block, that of the gateway, the network or all
// machines: permission to write annotations of Services must not be enough to announce it.
func (in Inputs) isReserved(a netip.Addr) bool {
	network := in.View.Expected.Network
	return slices.Contains(network.IPs, a) || slices.ContainsFunc(network.Blocks, func(b contract.NetworkBlock) bool {
		return b.CIDR.Contains(a) && (a == b.Gateway || a == b.CIDR.Masked().Addr() || !b.CIDR.Contains(a.Next()))
	})
}

// isKnown reports whether an address is in a block of the public network that this node knows.
func (in Inputs) isKnown(a netip.Addr) bool {
	return slices.ContainsFunc(in.View.Expected.Network.Blocks,
		func(b contract.NetworkBlock) bool { return b.CIDR.Contains(a) })
}

// localPort is the port on which kube-proxy reports whether the node has an endpoint; zero when any node can serve.
func localPort(service *corev1.Service) int32 {
	if service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	return service.Spec.HealthCheckNodePort
}

// LocalPorts are those ports of the Services that must be announced, sorted.
func LocalPorts(services []*corev1.Service) []int32 {
	var ports []int32
	for _, service := range services {
		if _, ok := Address(service); ok {
			if port := localPort(service); port != 0 {
				ports = append(ports, port)
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
