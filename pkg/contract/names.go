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
	// ServiceIPAllocation is AllocationDedicated (a block of its own) or AllocationShared (an address of the pool); the option
	// ipAllocation when empty.
	ServiceIPAllocation = Prefix + "ip-allocation"
	// ServiceIPBlockSize is the size of the block to buy, "/28" to "/30"; the option ipBlockSize when empty.
	ServiceIPBlockSize = Prefix + "ip-block-size"
	// ServiceIPBlockID is the ID of a block that the user brings: it is used and never deleted.
	ServiceIPBlockID = Prefix + "ip-block-id"
	// ServiceIPRetain is "true" when the block is to outlive the Service; the next Service of that name
	// gets it back.
	ServiceIPRetain = Prefix + "ip-retain"
	// ServiceRequestedIP is the address that the Service is to get, in a block that is there already.
	ServiceRequestedIP = Prefix + "requested-ip"
	// ServiceIPReplace is "true" when a new block, and with it a new address, may take the place of one
	// that was deleted outside of the cluster.
	ServiceIPReplace = Prefix + "ip-replace"
)

// Values of the annotation ServiceIPAllocation.
const (
	AllocationDedicated = "dedicated"
	AllocationShared    = "shared"
)

// LoadBalancerClass is the value of spec.loadBalancerClass that the controller serves, beside Services without one.
const LoadBalancerClass = Prefix + "ccm"

// LoadBalancerFinalizer is the finalizer that holds Services of LoadBalancerClass until their address is given back. The
// framework's finalizer would not do: the service controller of any other provider strips it.
const LoadBalancerFinalizer = Prefix + "load-balancer-cleanup"

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
	// ServiceIPOwner is the UID of the Service that the annotations above were written for. On a Service
	// with another UID, restored from a backup or copied, they prove nothing.
	ServiceIPOwner = Prefix + "ip-owner"
	// ServiceAnnouncedBy is the Node that answers for the address, where the agents announce. It is for people; nothing reads it.
	ServiceAnnouncedBy = Prefix + "announced-by"
	// ServiceAnnouncedSince is since when it does (RFC 3339).
	ServiceAnnouncedSince = Prefix + "announced-since"
	// KubeVIPAddresses is kube-vip's own annotation: the addresses that it announces for a Service.
	KubeVIPAddresses = "kube-vip.io/loadbalancerIPs"
	// KubeVIPInterface is kube-vip's own annotation: the interface on which it announces them. Written where the user left it
	// empty, once all agents report the same name.
	KubeVIPInterface = "kube-vip.io/serviceInterface"
)

// Types of the Service conditions that the controller writes. They go when the Service becomes another type.
const (
	// ServiceConditionBlockAssigned says whether the Service's IP block is assigned to the public network,
	// and where it stands on the way there or back.
	ServiceConditionBlockAssigned = Prefix + "BlockAssigned"
	// ServiceConditionAddressPublished says whether the address stands in the status of the Service.
	ServiceConditionAddressPublished = Prefix + "AddressPublished"
	// ServiceConditionAnnounced says whether a node answers for the address, as the agents report it.
	ServiceConditionAnnounced = Prefix + "Announced"
)

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
	// NodePublicNetworkBlocks lists the assigned blocks of that network with their gateways (JSON, see NetworkBlock).
	NodePublicNetworkBlocks = Prefix + "public-network-blocks"
	// NodeAnnouncer says who announces addresses: AnnouncerKubeVIP, AnnouncerAgent or AnnouncerNone.
	NodeAnnouncer = Prefix + "announcer"
)

// NodeHandOver is the Node annotation by which a user has the agent of the Node hand the addresses that it announces over to
// others, "true" before maintenance; it takes addresses again when the annotation is gone.
const NodeHandOver = Prefix + "hand-over"

// Values of the annotation NodeAnnouncer.
const (
	AnnouncerKubeVIP = "kube-vip"
	AnnouncerAgent   = "agent"
	AnnouncerNone    = "none"
)

// NodeVLANReady is the label that the controller keeps at "true" on Nodes that may announce addresses.
// kube-vip's DaemonSet selects on it.
const NodeVLANReady = Prefix + "vlan-ready"

// Further labels of a Node, kept in line with the server.
const (
	// NodeLocation is the phoenixNAP location of the server, such as ASH.
	NodeLocation = Prefix + "location"
	// NodeServerType is the product, such as s2.c1.medium.
	NodeServerType = Prefix + "server-type"
	// NodeOS is the operating system that phoenixNAP installed, such as ubuntu-jammy.
	NodeOS = Prefix + "os"
	// NodeNetworkType is the server's network type, such as PUBLIC_AND_PRIVATE.
	NodeNetworkType = Prefix + "network-type"
)

// NodeReportedIdentity is the Node annotation that the agent writes, through the status subresource: host name, addresses,
// hardware addresses and VLAN interface of the machine, and its server ID where it knows that (JSON, see Identity).
const NodeReportedIdentity = Prefix + "reported-identity"

// NodeReportedAddresses is the Node annotation that the agent writes, through the status subresource: how the addresses of
// Services answer on the wire there: state, hardware address, whether this node holds it, since when (JSON, see
// ReportedAddresses). At most 32: those that the node holds or ought to hold, and those that no other node has reported.
const NodeReportedAddresses = Prefix + "reported-addresses"

// NodeMembershipManaged is "true" on a Node whose server the controller joined to the public network. For people to read:
// the record is the ConfigMap phoenixnap-members in kube-system.
const NodeMembershipManaged = Prefix + "public-network-managed"

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
