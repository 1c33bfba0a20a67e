package metadata

// Reasons of the events on a Node.
const (
	// ReasonAdmitted (Normal): the Node gets the label contract.NodeVLANReady.
	ReasonAdmitted = "AdmittedToPublicNetwork"
	// ReasonExcluded (Warning): the Node loses the label.
	ReasonExcluded = "ExcludedFromPublicNetwork"
	// ReasonMembershipMissing (Warning): the Node is to carry load-balancer traffic, but its server is no member of the
	// public network.
	ReasonMembershipMissing = "PublicNetworkMembershipMissing"
	// ReasonAgentSilent (Warning): the agent has not renewed its Lease, so its conditions count no longer. It is the
	// reason of the conditions too.
	ReasonAgentSilent = "AgentSilent"
	// ReasonNodeUnreachable (Warning): neither the kubelet nor the agent is heard of. It is the reason of the
	// conditions too.
	ReasonNodeUnreachable = "NodeUnreachable"
)
