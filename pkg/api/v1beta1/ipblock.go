package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IPBlock is an IP block of the phoenixNAP account that this cluster uses.
//
// A person orders a block that Services share by creating an object with purpose Shared, a size, and any name that the
// controller does not give. It is bought within minutes, and stays until the object is deleted.
//
// The controller names an object for what the block is bought for, so that it is never bought twice: svc-<UID of the
// Service>, <network>-shared-<number> and <network>-nodes-<number>. A block that is in the account already gets
// block-<ID of the block>, unless a person creates an object for it, with source Brought and another name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ipb
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:metadata:annotations="argocd.argoproj.io/sync-options=Prune=false"
// +kubebuilder:metadata:annotations="kustomize.toolkit.fluxcd.io/prune=disabled"
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.attachment.name`
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.spec.purpose`
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.spec.serviceRef.name`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.serviceRef.namespace`,priority=1
// +kubebuilder:printcolumn:name="Block",type=string,JSONPath=`.spec.blockID`,priority=1
// +kubebuilder:printcolumn:name="Reclaim policy",type=string,JSONPath=`.spec.reclaimPolicy`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name may have 63 characters at most, because it is part of a label"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.allocations) || oldSelf.status.allocations.size() == 0 || (has(self.spec.serviceRef) == has(oldSelf.spec.serviceRef) && (!has(self.spec.serviceRef) || (self.spec.serviceRef.__namespace__ == oldSelf.spec.serviceRef.__namespace__ && self.spec.serviceRef.name == oldSelf.spec.serviceRef.name)))",message="serviceRef cannot name another Service while an address of the block is allocated; delete that Service first"
type IPBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which block this is and what it is for.
	// +required
	Spec IPBlockSpec `json:"spec"`
	// Status is written only by the controller.
	// +optional
	Status IPBlockStatus `json:"status,omitempty"`
}

// IPBlockList is a list of IPBlocks.
//
// +kubebuilder:object:root=true
type IPBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPBlock `json:"items"`
}

// Attachment says to what of the account a block is assigned.
type Attachment struct {
	// Kind of what the block is assigned to.
	// +kubebuilder:validation:Enum=PublicNetwork
	// +kubebuilder:default=PublicNetwork
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the object of that kind. The public network of the option loadbalancer is called default.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name must be one of a public network: lowercase letters, digits and hyphens, such as default"
	// +kubebuilder:default=default
	// +optional
	Name string `json:"name,omitempty"`
}

// Source says where a block comes from.
// +kubebuilder:validation:Enum=Bought;Brought
type Source string

// Names of the objects that the controller creates begin with one of these. It creates each name once, so that nothing
// is bought twice.
const (
	// NamePrefix is before the ID of a block that was in the account before its object.
	NamePrefix = "block-"
	// ServicePrefix is before the UID of the Service for which a block is bought.
	ServicePrefix = "svc-"
)

// SharedPrefix and NodesPrefix are before a number in the names of blocks of a public network.
func SharedPrefix(network string) string { return network + "-shared-" }

// NodesPrefix is before a number, see SharedPrefix.
func NodesPrefix(network string) string { return network + "-nodes-" }

// ConditionAllocatable is the condition of an IPBlock that is False, with reason AllocatableClosed, while no address of
// it is allocated any more, because it is being released.
const (
	ConditionAllocatable = "Allocatable"
	AllocatableOpen      = "Open"
	AllocatableClosed    = "Closed"
)

// ConditionAssigned and ConditionReady say whether the block is assigned to the public network, and whether its
// addresses work. For the block of one Service, which has its address then, reason and message are those of the
// Service's conditions.
const (
	ConditionAssigned = "Assigned"
	ConditionReady    = "Ready"
)

// ConditionOrphaned is True while the Service of a block does not exist: with reason OrphanedServiceGone, or
// OrphanedAwaitingConfirmation if too many blocks became orphans at once. Ready then has the same reason. It is True
// with reason OrphanedNotUsed while no one has an address of a block that was bought to be shared, or for nodes.
const (
	ConditionOrphaned            = "Orphaned"
	OrphanedServiceGone          = "ServiceGone"
	OrphanedAwaitingConfirmation = "AwaitingConfirmation"
	OrphanedNotUsed              = "NotUsed"
)

// AssignedRetained is the reason of Assigned and Ready of a block that outlives its Service, AssignedNotFound that of
// one which the account does not show.
const (
	AssignedRetained = "Retained"
	AssignedNotFound = "BlockNotFound"
)

// UnassignedReasons are the reasons of Assigned, while it is False, by which the block is not in the network. With any
// other one, the controller could not find out or waits for a person, and a block that is in use works on.
func UnassignedReasons() []string {
	return []string{"AssignmentDue", "BlockAssigning", "UnassignmentDue", "BlockUnassigning", "NetworkChanging",
		"BlockElsewhere", "BlockLost", AssignedRetained, AssignedNotFound}
}

// Sources of blocks.
const (
	// SourceBought is a block that the controller buys, and releases if the reclaim policy is Delete.
	SourceBought Source = "Bought"
	// SourceBrought is a block that is in the account already. It is never released.
	SourceBrought Source = "Brought"
)

// Purpose says for what the addresses of a block are.
// +kubebuilder:validation:Enum=Service;Shared;Nodes
type Purpose string

// Purposes of blocks.
const (
	// PurposeService is a block of one Service.
	PurposeService Purpose = "Service"
	// PurposeShared is a block of which each Service gets one address.
	PurposeShared Purpose = "Shared"
	// PurposeNodes is a block of which nodes get addresses of their own.
	PurposeNodes Purpose = "Nodes"
)

// ReclaimPolicy says what happens to a bought block that is not needed any more.
// +kubebuilder:validation:Enum=Delete;Retain
type ReclaimPolicy string

// Reclaim policies.
const (
	// ReclaimDelete releases the block.
	ReclaimDelete ReclaimPolicy = "Delete"
	// ReclaimRetain keeps the block in the account, where it costs money.
	ReclaimRetain ReclaimPolicy = "Retain"
)

// IPBlockSpec says which block this is and what it is for.
//
// +kubebuilder:validation:XValidation:rule="has(self.blockID) || !has(oldSelf.blockID)",message="blockID cannot be removed: it says which block of the account this object is"
// +kubebuilder:validation:XValidation:rule="has(self.size) == has(oldSelf.size)",message="size cannot be added or removed: a block keeps its size; create another IPBlock"
// +kubebuilder:validation:XValidation:rule="self.source != 'Brought' || has(self.blockID)",message="a block with source Brought needs blockID: the ID by which phoenixNAP knows it"
// +kubebuilder:validation:XValidation:rule="self.source != 'Brought' || !has(self.size)",message="a block with source Brought has the size that it was bought with; remove size"
// +kubebuilder:validation:XValidation:rule="self.source != 'Brought' || !has(self.reclaimPolicy) || self.reclaimPolicy == 'Retain'",message="a block with source Brought is never released; remove reclaimPolicy"
// +kubebuilder:validation:XValidation:rule="self.source == 'Brought' || self.purpose == 'Shared' || !has(self.reclaimPolicy)",message="only a block with purpose Shared has a reclaimPolicy; remove it. For the block of one Service use the annotation phoenixnap.com/ip-retain of the Service"
// +kubebuilder:validation:XValidation:rule="self.purpose == 'Service' || !has(self.serviceRef)",message="only a block with purpose Service can have a serviceRef; remove it, or set purpose to Service"
// +kubebuilder:validation:XValidation:rule="self.purpose != 'Nodes' || !has(self.allowedNamespaces)",message="a block with purpose Nodes has no address for a Service; remove allowedNamespaces"
// +kubebuilder:validation:XValidation:rule="self.purpose != 'Service' || has(self.serviceRef) || has(self.allowedNamespaces)",message="a block with purpose Service needs serviceRef, or allowedNamespaces whose Services may name it"
type IPBlockSpec struct {
	// Attachment is what the block is assigned to.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="attachment cannot be changed; create another IPBlock"
	// +kubebuilder:default={kind: PublicNetwork, name: default}
	// +optional
	Attachment Attachment `json:"attachment,omitempty"`
	// Source is where the block comes from.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="source cannot be changed; create another IPBlock"
	// +kubebuilder:default=Bought
	// +optional
	Source Source `json:"source,omitempty"`
	// BlockID is the ID by which phoenixNAP knows the block. With source Bought the controller writes it after the
	// purchase.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="blockID cannot be changed: it says which block of the account this object is; create another IPBlock"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{24}$')",message="blockID must be the ID of an IP block, 24 hexadecimal digits in lowercase, as phoenixNAP's portal and API show it"
	// +optional
	BlockID string `json:"blockID,omitempty"`
	// Size of the block to buy, as a prefix length with its slash.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="size cannot be changed: a block keeps its size; create another IPBlock"
	// +kubebuilder:validation:Enum=/28;/29;/30
	// +optional
	Size string `json:"size,omitempty"`
	// Purpose is for what the addresses are.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="purpose cannot be changed; create another IPBlock"
	// +required
	Purpose Purpose `json:"purpose"`
	// ServiceRef is the Service whose block this is. It stays while no Service of that name exists.
	// +optional
	ServiceRef *ServiceReference `json:"serviceRef,omitempty"`
	// ReclaimPolicy is what happens to a block with purpose Shared while no Service has an address of it. If it is
	// empty, a block that the controller bought for Services is released; one that a person ordered, and one with
	// source Brought, stays. When the object of a bought block is deleted, the block is released in any case.
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// AllowedNamespaces are those whose Services may name the block (annotation phoenixnap.com/ip-block). If it is
	// empty, all may name one with purpose Shared, and of one with purpose Service only that of serviceRef.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="each must be the name of a namespace: lowercase letters, digits and hyphens; there are no patterns"
	// +listType=set
	// +optional
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
}

// ServiceReference names a Service.
type ServiceReference struct {
	// Namespace of the Service.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be the name of a namespace: lowercase letters, digits and hyphens"
	// +required
	Namespace string `json:"namespace"`
	// Name of the Service.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be the name of a Service: lowercase letters, digits and hyphens"
	// +required
	Name string `json:"name"`
	// UID of the Service; empty until the controller has seen it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=36
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// IPBlockStatus is what the controller knows of the block.
//
// +kubebuilder:validation:XValidation:rule="!has(self.allocations) || !has(self.cidr) || self.allocations.all(a, cidr(self.cidr).containsIP(a.address))",message="allocations can only have addresses of the block; see cidr"
type IPBlockStatus struct {
	// CIDR of the block.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be an address with a prefix length"
	// +optional
	CIDR string `json:"cidr,omitempty"`
	// Gateway is the address of phoenixNAP's router in the block.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="gateway must be an address"
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// Location of the block.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Location string `json:"location,omitempty"`
	// Used is how many addresses are allocated, and of how many, such as 3/5.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Used string `json:"used,omitempty"`
	// AssignedHere is true when the controller assigned a block with source Brought, so that it is the one to unassign
	// the block.
	// +optional
	AssignedHere bool `json:"assignedHere,omitempty"`
	// Purchase is the latest attempt to buy the block. It is written before the request.
	// +optional
	Purchase *Purchase `json:"purchase,omitempty"`
	// Allocations say who has which address. While the field is missing no one knows, and it is made again from the
	// addresses that are in use.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=address
	// +optional
	Allocations *[]Allocation `json:"allocations,omitempty"`
	// Quarantined are addresses that someone may still answer for, so that they are not allocated yet.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=address
	// +optional
	Quarantined []Quarantine `json:"quarantined,omitempty"`
	// Conditions of the block. Allocatable is False while the block is being released.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Purchase is an attempt to buy a block. The UID of the object and the number of the attempt are in the description of
// the block, by which it is found if the answer was lost.
type Purchase struct {
	// Attempt is its number, from 1.
	// +kubebuilder:validation:Minimum=1
	// +required
	Attempt int32 `json:"attempt"`
	// Time of the attempt, by the clock of the controller.
	// +required
	Time metav1.MicroTime `json:"time"`
}

// Allocation says who has an address: Services, or a server.
//
// +kubebuilder:validation:XValidation:rule="has(self.services) != has(self.server)",message="an address belongs either to Services or to a server"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.services) || (has(self.services) && self.services.exists(s, oldSelf.services.exists(o, o.__namespace__ == s.__namespace__ && o.name == s.name)))",message="an address goes to another Service only after it was free"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.server) || (has(self.server) && self.server == oldSelf.server)",message="an address goes to another server only after it was free"
type Allocation struct {
	// Address of the block.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an address"
	// +required
	Address string `json:"address"`
	// Services that have the address.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=24
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +optional
	Services []ServiceReference `json:"services,omitempty"`
	// SharedAs is what the Services have in common that may have the address together: <namespace>/<key>, or <key> of
	// those that name the IPBlock and whose namespaces it lists. The key is their annotation
	// phoenixnap.com/shared-address. Without it one Service has the address.
	// +kubebuilder:validation:MaxLength=127
	// +optional
	SharedAs string `json:"sharedAs,omitempty"`
	// Server is the ID of the server that has the address for its node, as phoenixNAP's portal and API show it.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{24}$')",message="server must be the ID of a server, 24 hexadecimal digits in lowercase"
	// +optional
	Server string `json:"server,omitempty"`
	// Since when it has been allocated.
	// +required
	Since metav1.Time `json:"since"`
}

// Quarantine is an address that is free, but that someone may still answer for. Without Services and server it is not
// known who had it: the record was lost and made again.
type Quarantine struct {
	// Address of the block.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an address"
	// +required
	Address string `json:"address"`
	// Services that had the address.
	// +kubebuilder:validation:MaxItems=24
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +optional
	Services []ServiceReference `json:"services,omitempty"`
	// Server is the ID of the server that had the address for its node.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{24}$')",message="server must be the ID of a server, 24 hexadecimal digits in lowercase"
	// +optional
	Server string `json:"server,omitempty"`
	// Since when it has been free, or has been recorded again. What an agent reported before does not count.
	// +required
	Since metav1.MicroTime `json:"since"`
}
