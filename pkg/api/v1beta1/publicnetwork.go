package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PublicNetwork is a public network of the phoenixNAP account, from which Services of type LoadBalancer get addresses.
//
// The network of the option loadbalancer is called default. The controller creates that object, and its spec says what
// the options say: to change it, change the options. An object of another name is a further network, which its author
// describes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pubnet
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:metadata:annotations="argocd.argoproj.io/sync-options=Prune=false"
// +kubebuilder:metadata:annotations="kustomize.toolkit.fluxcd.io/prune=disabled"
// +kubebuilder:printcolumn:name="Location",type=string,JSONPath=`.status.location`
// +kubebuilder:printcolumn:name="VLAN",type=integer,JSONPath=`.status.vlan`
// +kubebuilder:printcolumn:name="Blocks",type=string,JSONPath=`.status.blocks`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.id`,priority=1
// +kubebuilder:printcolumn:name="Announcer",type=string,JSONPath=`.spec.announcer`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="the name may have 40 characters at most, because it is part of the names of IPBlocks"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name must have only lowercase letters, digits and hyphens, because IPBlocks name it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.matches('^(svc|block)(-|$)|-(shared|nodes)(-|$)')",message="the name may not begin with svc or block, nor have a part shared or nodes: names of IPBlocks do"
type PublicNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which network this is and how it is used.
	// +required
	Spec PublicNetworkSpec `json:"spec"`
	// Status is written only by the controller, at most every 30 seconds.
	// +optional
	Status PublicNetworkStatus `json:"status,omitempty"`
}

// PublicNetworkList is a list of PublicNetworks.
//
// +kubebuilder:object:root=true
type PublicNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PublicNetwork `json:"items"`
}

// DefaultNetwork is the name of the PublicNetwork of the option loadbalancer.
const DefaultNetwork = "default"

// ConditionFull is True while a public network has as many IPv4 blocks as it can have, so that none is bought.
const ConditionFull = "Full"

// AnnouncerKind is the software on the nodes that answers for addresses of Services.
// +kubebuilder:validation:Enum=KubeVIP;Agent;None
type AnnouncerKind string

// Kinds of announcers.
const (
	// AnnouncerKubeVIP is kube-vip, kube-vip:// in the option loadbalancer.
	AnnouncerKubeVIP AnnouncerKind = "KubeVIP"
	// AnnouncerAgent are the agents, agent:// in the option loadbalancer.
	AnnouncerAgent AnnouncerKind = "Agent"
	// AnnouncerNone is no software that this project knows.
	AnnouncerNone AnnouncerKind = "None"
)

// AllocationKind says how Services get addresses.
// +kubebuilder:validation:Enum=Dedicated;Shared
type AllocationKind string

// Kinds of allocation.
const (
	// AllocationDedicated is one block for each Service.
	AllocationDedicated AllocationKind = "Dedicated"
	// AllocationShared is several Services in one block.
	AllocationShared AllocationKind = "Shared"
)

// MembershipPolicy says who makes the servers of Nodes members of the network.
// +kubebuilder:validation:Enum=Manage;Report
type MembershipPolicy string

// Membership policies.
const (
	// MembershipManage has the controller add servers, and remove those that it added.
	MembershipManage MembershipPolicy = "Manage"
	// MembershipReport has the controller report servers that are no members.
	MembershipReport MembershipPolicy = "Report"
)

// MemberAddresses says which addresses of the network the Nodes themselves get.
// +kubebuilder:validation:Enum=Block;None
type MemberAddresses string

// Addresses of members.
const (
	// MemberAddressesBlock gives each Node one of a block that is for nodes.
	MemberAddressesBlock MemberAddresses = "Block"
	// MemberAddressesNone gives Nodes none.
	MemberAddressesNone MemberAddresses = "None"
)

// PublicNetworkSpec says which network this is and how it is used.
type PublicNetworkSpec struct {
	// ID by which phoenixNAP knows the network.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="id cannot be changed: it says which network of the account this object is; create another PublicNetwork"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{24}$')",message="id must be the ID of a public network, 24 hexadecimal digits in lowercase, as phoenixNAP's portal and API show it"
	// +required
	ID string `json:"id"`
	// Announcer answers for the addresses of Services on the nodes.
	// +required
	Announcer AnnouncerKind `json:"announcer"`
	// IPBlocks says how IP blocks are bought and kept.
	// +kubebuilder:default={allocation: Dedicated, size: "/29", maximumRetained: 2, maximumRetainedPerNamespace: 1}
	// +optional
	IPBlocks IPBlockPolicy `json:"ipBlocks,omitempty"`
	// Members says which nodes carry traffic of the network, and how their servers become members.
	// +kubebuilder:default={membership: Report, addresses: Block}
	// +optional
	Members MemberPolicy `json:"members,omitempty"`
}

// IPBlockPolicy says how IP blocks are bought and kept.
//
// +kubebuilder:validation:XValidation:rule="self.allocation != 'Shared' || self.size != '/30'",message="a block of size /30 has one address for Services, which cannot be shared: set size to /28 or /29"
// +kubebuilder:validation:XValidation:rule="!has(self.maximum) || self.maximum > 0",message="maximum must be at least 1; without it, as many blocks are bought as the network can have"
type IPBlockPolicy struct {
	// Allocation is how Services get addresses whose annotation phoenixnap.com/ip-allocation says nothing; option
	// ipAllocation.
	// +kubebuilder:default=Dedicated
	// +optional
	Allocation AllocationKind `json:"allocation,omitempty"`
	// Size of new blocks, as a prefix length with its slash; option ipBlockSize.
	// +kubebuilder:validation:Enum=/28;/29;/30
	// +kubebuilder:default="/29"
	// +optional
	Size string `json:"size,omitempty"`
	// Maximum number of blocks to buy; option maxIPBlocks. If it is missing, as many as the network can have.
	// +optional
	Maximum *int32 `json:"maximum,omitempty"`
	// MaximumRetained is how many blocks may outlive their Services; option maxRetainedIPBlocks.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=2
	// +optional
	MaximumRetained *int32 `json:"maximumRetained,omitempty"`
	// MaximumRetainedPerNamespace is how many blocks may outlive the Services of one namespace; option
	// maxRetainedIPBlocksPerNamespace.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=1
	// +optional
	MaximumRetainedPerNamespace *int32 `json:"maximumRetainedPerNamespace,omitempty"`
}

// MemberPolicy says which nodes carry traffic of the network, and how their servers become members.
type MemberPolicy struct {
	// NodeSelector selects the nodes by their labels; option serviceNodeSelector. If it is empty, all nodes.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	NodeSelector []NodeRequirement `json:"nodeSelector,omitempty"`
	// Membership says who makes servers members of the network; option manageMembership.
	// +kubebuilder:default=Report
	// +optional
	Membership MembershipPolicy `json:"membership,omitempty"`
	// Addresses says which addresses of the network nodes get; option nodeAddress.
	// +kubebuilder:default=Block
	// +optional
	Addresses MemberAddresses `json:"addresses,omitempty"`
}

// NodeRequirement is what must hold for a label of a node, as in the affinity of a Pod to nodes.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",message="the operators In and NotIn need values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",message="the operators Exists and DoesNotExist take no values; remove them"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 && self.values[0].matches('^-?[0-9]{1,18}$'))",message="the operators Gt and Lt need one value, a whole number"
type NodeRequirement struct {
	// Key of the label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +required
	Key string `json:"key"`
	// Operator says how the label has to relate to the values.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
	// +required
	Operator string `json:"operator"`
	// Values of the label.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Values []string `json:"values,omitempty"`
}

// PublicNetworkStatus is what the controller knows of the network, from what it read last for its other work.
type PublicNetworkStatus struct {
	// Location of the network.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Location string `json:"location,omitempty"`
	// VLAN is the ID of the VLAN on which the nodes are in the network.
	// +optional
	VLAN int32 `json:"vlan,omitempty"`
	// IPv4Blocks is how many IPv4 blocks the network has, those of others included.
	// +optional
	IPv4Blocks int32 `json:"ipv4Blocks,omitempty"`
	// IPv4BlockLimit is how many IPv4 blocks it can have.
	// +optional
	IPv4BlockLimit int32 `json:"ipv4BlockLimit,omitempty"`
	// Blocks is IPv4Blocks, and of how many, such as 3/10.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Blocks string `json:"blocks,omitempty"`
	// Members is how many nodes of the cluster have a server that is a member of the network.
	// +optional
	Members int32 `json:"members,omitempty"`
	// ReadyMembers is how many of them carry traffic: they have the label phoenixnap.com/vlan-ready.
	// +optional
	ReadyMembers int32 `json:"readyMembers,omitempty"`
	// Nodes is ReadyMembers, and of how many, such as 2/3.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Nodes string `json:"nodes,omitempty"`
	// AccountReadTime is when the controller last read the IP blocks of the account, for what it shows of them. It is
	// written every five minutes, and at once after a failure.
	// +optional
	AccountReadTime *metav1.Time `json:"accountReadTime,omitempty"`
	// Conditions of the network. Ready says whether it can be used, Full whether it has no room for another IPv4 block.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
