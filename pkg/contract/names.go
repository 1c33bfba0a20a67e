// Package contract defines the names that the controller, the agent and their users share: provider ID, annotations,
// labels, tags and conditions, each with its codec. A name here is an interface; change one only with a migration.
package contract

// ProviderName is the name under which the provider registers with k8s.io/cloud-provider (--cloud-provider=phoenixnap).
const ProviderName = "phoenixnap"

// Prefix is the domain of all annotations, labels and conditions that the project owns.
const Prefix = "phoenixnap.com/"

// Service annotations that a user writes.
const (
	// ServiceIPLocation is the phoenixNAP location in which to buy the IP block, such as "ASH". The option
	// annotationIPLocation can change the name of this annotation.
	ServiceIPLocation = Prefix + "ip-location"
	// ServiceIPAllocation is AllocationDedicated (one block for the Service) or AllocationShared (an address of the
	// pool); the option ipAllocation when empty.
	ServiceIPAllocation = Prefix + "ip-allocation"
	// ServiceIPBlockSize is the size of the block to buy, "/28" to "/30"; the option ipBlockSize when empty.
	ServiceIPBlockSize = Prefix + "ip-block-size"
	// ServiceIPBlock is the name of an IPBlock with purpose Shared, of a block that an administrator brings, which is
	// never deleted, or that was bought: the Service gets an address of that block and of no other.
	ServiceIPBlock = Prefix + "ip-block"
	// ServiceIPRetain is "true" to keep the block when the Service is deleted; the next Service of that name gets it
	// back.
	ServiceIPRetain = Prefix + "ip-retain"
	// ServiceRequestedIP is the address that the Service requests, in an existing block.
	ServiceRequestedIP = Prefix + "requested-ip"
	// ServiceSharedAddress is the key by which several Services have one address: those of a namespace with the same
	// key, or those that name the same IPBlock whose allowedNamespaces list theirs. Their ports are disjoint.
	ServiceSharedAddress = Prefix + "shared-address"
	// ServiceNetwork is the name of the PublicNetwork from which the Service gets its address; if it is empty, that of
	// its location, else default.
	ServiceNetwork = Prefix + "network"
	// ServiceIPReplace is "true" to allow a new block, and with it a new address, to replace a block that was deleted
	// outside of the cluster.
	ServiceIPReplace = Prefix + "ip-replace"
)

// Values of the annotation ServiceIPAllocation.
const (
	AllocationDedicated = "dedicated"
	AllocationShared    = "shared"
)

// LoadBalancerClass is the value of spec.loadBalancerClass that the controller serves, in addition to Services without
// a class.
const LoadBalancerClass = Prefix + "ccm"

// LoadBalancerFinalizer is the finalizer that holds Services of LoadBalancerClass until their address is released. The
// framework's finalizer is not enough: the service controller of any other provider removes it.
const LoadBalancerFinalizer = Prefix + "load-balancer-cleanup"

// Service annotations that the controller writes, all in one patch and only once the block is assigned.
const (
	// ServiceIPAddress is the public address of the Service.
	ServiceIPAddress = Prefix + "ip-address"
	// ServiceIPBlockCIDR is the block of that address, in CIDR notation.
	ServiceIPBlockCIDR = Prefix + "ip-block-cidr"
	// ServiceIPGateway is the gateway of that block.
	ServiceIPGateway = Prefix + "ip-gateway"
	// ServiceIPBlockAssigned is "true" while the block is assigned to the public network.
	ServiceIPBlockAssigned = Prefix + "ip-block-assigned"
	// ServiceIPOwner is the UID of the Service that the annotations above were written for. On a Service
	// with another UID, restored from a backup or copied, they are not valid.
	ServiceIPOwner = Prefix + "ip-owner"
	// ServiceAnnouncedBy is the Node that answers for the address, if the agents announce. It is for users; no program
	// reads it.
	ServiceAnnouncedBy = Prefix + "announced-by"
	// ServiceAnnouncedSince is when that Node began to answer (RFC 3339).
	ServiceAnnouncedSince = Prefix + "announced-since"
	// KubeVIPAddresses is kube-vip's own annotation: the addresses that it announces for a Service.
	KubeVIPAddresses = "kube-vip.io/loadbalancerIPs"
	// KubeVIPInterface is kube-vip's own annotation: the interface on which it announces them. Written where the user
	// left it empty, once all agents report the same name; in a network besides default, the name that most report.
	KubeVIPInterface = "kube-vip.io/serviceInterface"
	// KubeVIPLease is kube-vip's own annotation: the Lease by which it elects the node of the address. Written only
	// where several Services may have it, which is one Lease for all of them.
	KubeVIPLease = "kube-vip.io/leaseName"
	// KubeVIPHost is the annotation in which kube-vip writes the node that announces a Service over ARP (updateStatus,
	// in pkg/manager/services.go of v0.9 and pkg/services/services.go of v1.0).
	KubeVIPHost = "kube-vip.io/vipHost"
)

// Types of the Service conditions that the controller writes. They are removed when the Service becomes another type.
const (
	// ServiceConditionBlockAssigned reports whether the Service's IP block is assigned to the public network, or the
	// progress of its assignment or release.
	ServiceConditionBlockAssigned = Prefix + "BlockAssigned"
	// ServiceConditionAddressPublished reports whether the status of the Service contains the address.
	ServiceConditionAddressPublished = Prefix + "AddressPublished"
	// ServiceConditionAnnounced reports whether a node answers for the address, as the agents report it.
	ServiceConditionAnnounced = Prefix + "Announced"
)

// Node annotations that the controller writes.
const (
	// NodeServerID is the ID of the phoenixNAP server that the Node runs on.
	NodeServerID = Prefix + "server-id"
	// NodePublicNetworks lists the public networks that concern the Node, the one named default first, then by name: a
	// JSON list of name, id, vlan, ips (the addresses of the server's membership, each with the prefix length of its
	// block, if that is known), member (whether the server is an assigned member) and announcer (AnnouncerKubeVIP,
	// AnnouncerAgent or AnnouncerNone). It is [] when load balancers are off.
	NodePublicNetworks = Prefix + "public-networks"
	// NodeServerMissing is when the controller found that the server of a Ready Node no longer exists (RFC 3339). The
	// other annotations about the server and its network are then removed.
	NodeServerMissing = Prefix + "server-missing"
)

// NodeHandOver is the Node annotation that makes the agent of the Node hand its addresses over to other nodes. A user
// sets it to "true" before maintenance; the agent takes addresses again when the annotation is removed.
const NodeHandOver = Prefix + "hand-over"

// Announcers in the annotation NodePublicNetworks.
const (
	AnnouncerKubeVIP = "kube-vip"
	AnnouncerAgent   = "agent"
	AnnouncerNone    = "none"
)

// AnnouncerByLease is the announcer that elects the node of a Service by a Lease, which it chooses when it takes the
// Service up. For an address that several Services have, it cannot follow externalTrafficPolicy Local.
const AnnouncerByLease = AnnouncerKubeVIP

// NodeVLANReady is the label that the controller sets to "true" on Nodes that may announce addresses.
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

// NodeReportedIdentity is the Node annotation that the agent writes, through the status subresource: host name,
// addresses, MAC addresses and VLAN interfaces of the machine, and its server ID where known (JSON, see Identity).
const NodeReportedIdentity = Prefix + "reported-identity"

// NodeReportedAddresses is the Node annotation that the agent writes, through the status subresource: how the addresses
// of Services answer on the wire: state, MAC address, whether this node holds the address, since when (JSON, see
// ReportedAddresses). At most 32: those that the node holds or should hold, and those that no other node has reported.
const NodeReportedAddresses = Prefix + "reported-addresses"

// NodeMembershipManaged has the names of the public networks to which the controller joined the server of a Node,
// separated by commas. It is for users: the record is the ConfigMap phoenixnap-members in kube-system.
const NodeMembershipManaged = Prefix + "public-network-managed"

// Types of the Node conditions that the agent writes.
const (
	// ConditionVLANReady reports whether the node can carry traffic of the public network.
	ConditionVLANReady = Prefix + "VLANReady"
	// ConditionAnnouncementHealthy reports whether the announced addresses answer as they should.
	ConditionAnnouncementHealthy = Prefix + "AnnouncementHealthy"
)

// HeartbeatKeyShared is the reason of ConditionAnnouncementHealthy when all addresses answer, but another cluster signs
// heartbeats on this VLAN with the key of this one (`agent://`). They are dropped. Replace the key of one of the
// clusters.
const HeartbeatKeyShared = "HeartbeatKeyShared"

// AllowDeletion is the annotation, "true", with which a person allows an IPBlock to be deleted although addresses of it
// are allocated, or the definition of a kind although its objects go with it (deploy/crds/policy.yaml). Nothing is
// released then: the controller takes its finalizer off at once.
const AllowDeletion = Prefix + "allow-deletion"

// AllowRelease is the annotation, "true", with which a person allows an IPBlock to be deleted, and by that its block to
// be released, whose address someone may still count on: one that outlives its Service, and one of many that became
// orphans at once (deploy/crds/policy.yaml).
const AllowRelease = Prefix + "allow-release"

// IPBlockFinalizer is the finalizer that keeps an IPBlock, with what it records, until its block is not paid for any
// more.
const IPBlockFinalizer = Prefix + "ip-block-cleanup"

// AgentLeasePrefix and the Node's name form the name of the agent's Lease in kube-system, from which the controller
// determines whether the agent runs.
const AgentLeasePrefix = "phoenixnap-agent-"
