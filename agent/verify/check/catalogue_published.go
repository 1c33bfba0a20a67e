package check

// Checks about what the controller publishes about the network and the server.
const (
	NetworkPublished ID = "PN000"
	Membership       ID = "PN001"
	BlockAssigned    ID = "PN002"
	Identity         ID = "PN003"
)

// publishedChecks are about what the controller publishes about the network and the server.
func publishedChecks() []Check {
	return []Check{
		{
			ID: NetworkPublished, Title: "the controller has published the public network",
			Severity: Error, evaluate: checkPublished,
			Meaning: "The controller has written the public network to the annotations of this Node. All other checks " +
				"compare with it.",
			Causes: []string{
				"The controller does not run, or its option `loadbalancer` is not set.",
				"The controller has not found the server of this Node.",
				"The agent cannot reach the API server.",
			},
			Remedy: "Read the controller's log and the events of the Node. Without an API server, describe the " +
				"network with `--vlan`, `--network`, `--gateway` and `--address`.",
			Reasons: []string{"APIServerNotReached", "NetworkUnreadable", ReasonWaiting},
		},
		{
			ID: Identity, Title: "this machine is the server that its Node names", Severity: Error,
			DependsOn: []ID{NetworkPublished}, evaluate: checkIdentity,
			Meaning: "The server ID that the machine knows (from cloud-init or its firmware, if available) is that " +
				"of the Node, and the machine carries one of the Node's addresses. All other checks compare with " +
				"what the controller published for that server.",
			Causes: []string{
				"Two machines joined the cluster with the same name, for example after a disk image was cloned.",
				"The agent's kubeconfig or `--node-name` is that of another node.",
				"The server was replaced, and the new one took over the name of the old one.",
			},
			Remedy: "Give each machine its own name, delete the Node, and restart the kubelet so that it registers " +
				"again.",
			Reasons: []string{"OtherServer", "OtherMachine"},
		},
		{
			ID: Membership, Title: "the server is a member of the public network", Severity: Error,
			DependsOn: []ID{NetworkPublished, Identity}, evaluate: checkMembership,
			Meaning: "phoenixNAP lists the server as an assigned member of the public network; only then the switch " +
				"passes its VLAN.",
			Causes: []string{"The server was never added to the network.",
				"The assignment is still in progress, or failed."},
			Remedy: "Add the server to the network, with an address of its block, in the portal or by `POST " +
				"/servers/{id}/public-networks`, or let the controller do it with `--manage-membership`.",
			Reasons: []string{"NotAMember"},
		},
		{
			ID: BlockAssigned, Title: "an IP block is assigned to the public network", Severity: Warning,
			DependsOn: []ID{NetworkPublished}, evaluate: checkBlocks,
			Meaning: "At least one IPv4 block is assigned to the network. Without one there is no gateway to ask; " +
				"that is normal before the first Service, so the check is skipped then.",
		},
	}
}
