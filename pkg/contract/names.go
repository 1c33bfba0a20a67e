package contract

// ProviderName is the name under which the provider registers with k8s.io/cloud-provider
// (--cloud-provider=phoenixnap).
const ProviderName = "phoenixnap"

// Prefix is the domain of all annotations, labels and conditions that the project owns.
const Prefix = "phoenixnap.com/"

// Service annotations that a user writes.
const (
	// ServiceIPLocation names the phoenixNAP location in which to buy the IP block, such as "ASH".
	// The option annotationIPLocation may give it another name.
	ServiceIPLocation = Prefix + "ip-location"
)

// Service annotations that the controller writes, all in one patch and only once the block is assigned.
const (
	// ServiceIPAddress is the public address of the Service.
	ServiceIPAddress = Prefix + "ip-address"
	// ServiceIPBlock is the block of that address, in CIDR notation.
	ServiceIPBlock = Prefix + "ip-block"
	// ServiceIPGateway is the gateway of that block.
	ServiceIPGateway = Prefix + "ip-gateway"
	// ServiceIPBlockAssigned is "true" while the block is assigned to the public network.
	ServiceIPBlockAssigned = Prefix + "ip-block-assigned"
	// ServiceIPPurchase records the intent to buy a block before it is bought (JSON, see Purchase).
	ServiceIPPurchase = Prefix + "ip-purchase"
	// KubeVIPAddresses is kube-vip's own annotation: the addresses that it announces for a Service.
	KubeVIPAddresses = "kube-vip.io/loadbalancerIPs"
	// KubeVIPInterface is kube-vip's own annotation: the interface on which it announces them.
	KubeVIPInterface = "kube-vip.io/serviceInterface"
)

// ServiceIPBlockReady is the type of the Service condition that says where the Service's IP block stands.
const ServiceIPBlockReady = Prefix + "IPBlockReady"

// Node annotations that the controller writes.
const (
	// NodeServerID is the ID of the phoenixNAP server that the Node runs on.
	NodeServerID = Prefix + "server-id"
	// NodePublicNetworkID is the ID of the public network behind LoadBalancer Services.
	NodePublicNetworkID = Prefix + "public-network-id"
	// NodePublicNetworkVLAN is the VLAN ID of that network, in decimal.
	NodePublicNetworkVLAN = Prefix + "public-network-vlan"
	// NodePublicNetworkIPs lists the addresses of the server's membership in that network, separated by commas.
	NodePublicNetworkIPs = Prefix + "public-network-ips"
	// NodePublicNetworkMember is "true" while the server is an assigned member of that network, else "false".
	NodePublicNetworkMember = Prefix + "public-network-member"
	// NodePublicNetworkBlocks lists the assigned blocks of that network (JSON, see NetworkBlock).
	NodePublicNetworkBlocks = Prefix + "public-network-blocks"
	// NodeAnnouncer says who announces addresses: AnnouncerKubeVIP, AnnouncerAgent or AnnouncerNone.
	NodeAnnouncer = Prefix + "announcer"
)

// Values of the annotation NodeAnnouncer.
const (
	AnnouncerKubeVIP = "kube-vip"
	AnnouncerAgent   = "agent"
	AnnouncerNone    = "none"
)

// NodeVLANReady is the label that the controller keeps at "true" on Nodes that may announce addresses.
// kube-vip's DaemonSet selects on it.
const NodeVLANReady = Prefix + "vlan-ready"

// Further labels that a Node gets when it is initialised.
const (
	// NodeOS is the operating system that phoenixNAP installed, such as ubuntu-jammy.
	NodeOS = Prefix + "os"
	// NodeNetworkType is the server's network type, such as PUBLIC_AND_PRIVATE.
	NodeNetworkType = Prefix + "network-type"
)

// NodeReportedIdentity is the Node annotation that the agent writes, through the status subresource: what
// the machine knows of itself (JSON, see Identity).
const NodeReportedIdentity = Prefix + "reported-identity"

// Types of the Node conditions that the agent writes.
const (
	// ConditionVLANReady says whether the node can carry traffic of the public network.
	ConditionVLANReady = Prefix + "VLANReady"
	// ConditionAnnouncementHealthy says whether the announced addresses answer as they should.
	ConditionAnnouncementHealthy = Prefix + "AnnouncementHealthy"
)

// AgentLeasePrefix and the Node's name make the name of the agent's own Lease in kube-system; the
// controller reads life from it.
const AgentLeasePrefix = "phoenixnap-agent-"
