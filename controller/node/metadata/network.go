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
		contract.NodeServerID, contract.NodePublicNetworkID, contract.NodePublicNetworkVLAN, contract.NodePublicNetworkIPs,
		contract.NodePublicNetworkMember, contract.NodePublicNetworkBlocks, contract.NodeAnnouncer,
	}
}

// withoutNetwork is what a Node is told when load balancers are off.
func withoutNetwork(server pnap.Server) map[string]string {
	return map[string]string{contract.NodeServerID: server.ID, contract.NodeAnnouncer: contract.AnnouncerNone}
}

// describe says what the agent of a server should know of the public network. The server's own entry
// counts; the network's list of members, which may lag behind, fills in where the entry is silent.
func describe(server pnap.Server, network plan.Network, blocks []contract.NetworkBlock, announcer string) contract.NodeNetwork {
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

// usableBlocks returns the blocks of the network whose gateway may be expected to answer. The network
// lists a block from the moment its assignment begins, and is BUSY meanwhile: then only those count
// that were published before.
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

// isVLAN tells whether an answer of the API names a VLAN that an interface can have (802.1Q).
func isVLAN(id int) bool { return id >= 1 && id <= 4094 }

// changes returns what to write so that current becomes desired among the names that are ours.
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

// labelChanges returns which labels to set. None is taken off: an answer of the API may lack a property
// for a while.
func labelChanges(current, desired map[string]string) map[string]*string {
	patch := map[string]*string{}
	for name, want := range desired {
		if current[name] != want {
			patch[name] = &want
		}
	}
	return patch
}

// zoneChanges returns the labels that give a Node its zone, where it has none: the framework writes them only when it
// initialises a Node, and earlier versions named no zone. A zone that a label names is never changed:
// volumes may be bound to it, and next to the deprecated label the framework would correct the other one.
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

// firstOf keeps at most count addresses: a membership may list a range of thousands, and a Node object
// is read by everyone.
func firstOf(ips []netip.Addr, count int) []netip.Addr { return ips[:min(len(ips), count)] }
