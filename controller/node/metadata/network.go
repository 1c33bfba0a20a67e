package metadata

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// networkAnnotations are the annotations of which the package is the only writer.
func networkAnnotations() []string {
	return []string{
		contract.NodeServerID, contract.NodePublicNetworkID, contract.NodePublicNetworkVLAN,
		contract.NodePublicNetworkIPs,
		contract.NodePublicNetworkMember, contract.NodePublicNetworkBlocks, contract.NodeAnnouncer,
	}
}

// withoutNetwork is what is published on a Node when load balancers are off.
func withoutNetwork(server pnap.Server) map[string]string {
	return map[string]string{contract.NodeServerID: server.ID, contract.NodeAnnouncer: contract.AnnouncerNone}
}

// describe returns the public network as published for the agent of a server. The server's own entry counts; the
// network's list of members, which may be delayed, provides values that the entry lacks.
func describe(server pnap.Server, network plan.Network, blocks []contract.NetworkBlock,
	announcer string) contract.NodeNetwork {
	facts := contract.NodeNetwork{
		ServerID:  server.ID,
		NetworkID: network.ID,
		VLAN:      network.VLAN,
		Blocks:    blocks,
		Announcer: announcer,
	}
	listed := slices.IndexFunc(network.Members, func(m plan.Member) bool { return m.ServerID == server.ID })
	joined := slices.IndexFunc(server.PublicNetworks, func(m pnap.Membership) bool { return m.NetworkID == network.ID })
	if joined < 0 {
		return facts
	}
	membership := server.PublicNetworks[joined]
	facts.Member = membership.Status == pnap.MembershipAssigned || (membership.Status == "" && listed >= 0)
	facts.IPs = membership.IPs
	if len(facts.IPs) == 0 && listed >= 0 {
		facts.IPs = network.Members[listed].IPs
	}
	return facts
}

// usableBlocks returns the blocks of the network whose gateway is expected to answer. The network lists a block from
// the start of its assignment, during which it is BUSY: then only blocks count that were published before.
func usableBlocks(network plan.Network, published []contract.NetworkBlock) []contract.NetworkBlock {
	blocks := []contract.NetworkBlock{}
	for _, block := range network.Blocks {
		gateway := plan.Gateway(block.CIDR)
		if !gateway.IsValid() {
			continue
		}
		usable := contract.NetworkBlock{CIDR: block.CIDR, Gateway: gateway}
		if network.Status == plan.NetworkReady || slices.Contains(published, usable) {
			blocks = append(blocks, usable)
		}
	}
	slices.SortFunc(blocks, func(a, b contract.NetworkBlock) int {
		if order := a.CIDR.Addr().Compare(b.CIDR.Addr()); order != 0 {
			return order
		}
		return a.CIDR.Bits() - b.CIDR.Bits()
	})
	return blocks
}

// isVLAN reports whether a VLAN ID of the API is valid for an interface (802.1Q).
func isVLAN(id int) bool { return id >= 1 && id <= 4094 }

// changes returns the patch that changes current to desired, limited to the owned names.
func changes(current, desired map[string]string) map[string]*string {
	patch := map[string]*string{}
	for _, name := range networkAnnotations() {
		have, exists := current[name]
		want, wanted := desired[name]
		switch {
		case wanted && (!exists || have != want):
			patch[name] = &want
		case !wanted && exists:
			patch[name] = nil
		}
	}
	return patch
}

// labelChanges returns which labels to set. It removes none: an answer of the API may lack a property for a while.
func labelChanges(current, desired map[string]string) map[string]*string {
	patch := map[string]*string{}
	for name, want := range desired {
		if current[name] != want {
			patch[name] = &want
		}
	}
	return patch
}

// zoneChanges returns the zone labels of a Node without a zone: the framework writes them only when it initializes a
// Node, and earlier versions set no zone. An existing zone is never changed: volumes may be bound to it, and the
// framework makes the other label equal to the deprecated one.
func zoneChanges(node *corev1.Node, server pnap.Server) map[string]*string {
	zone := instances.Zone(node, server)
	patch := map[string]*string{}
	for _, name := range []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone} {
		if _, exists := node.Labels[name]; exists || zone == "" {
			return nil
		}
		patch[name] = &zone
	}
	return patch
}

// firstOf keeps at most count addresses: a membership may list a range of thousands, and many clients read Node
// objects.
func firstOf(ips []netip.Addr, count int) []netip.Addr { return ips[:min(len(ips), count)] }
