package metadata

// Reasons of the events on a Node.
const (
	// ReasonAdmitted (Normal): the Node gets the label contract.NodeVLANReady.
	ReasonAdmitted = "AdmittedToPublicNetwork"
	// ReasonExcluded (Warning): the Node loses the label.
	ReasonExcluded = "ExcludedFromPublicNetwork"
	// ReasonMembershipMissing (Warning): the Node is selected for load-balancer traffic, but its server is not a member
	// of the public network.
	ReasonMembershipMissing = "PublicNetworkMembershipMissing"
	// ReasonAgentSilent (Warning): the agent has not renewed its Lease, so its conditions no longer count. It is also
	// the reason of the conditions.
	ReasonAgentSilent = "AgentSilent"
	// ReasonNodeUnreachable (Warning): neither the kubelet nor the agent reports. It is also the reason of the
	// conditions.
	ReasonNodeUnreachable = "NodeUnreachable"
)
