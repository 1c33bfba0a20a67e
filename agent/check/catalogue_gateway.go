package check

// gatewayChecks are about the routers of the blocks.
func gatewayChecks() []Check {
	return []Check{
		{
			ID: GatewayAnswers, Title: "the gateway answers", Severity: Error, Wire: true,
			DependsOn: []ID{Membership, NodeAddress}, judge: judgeGateway,
			Meaning: "The gateway of each block answers an ARP request on the VLAN interface. Only silence towards an address of the same block is a failure, and only in two samples of three requests each; a router may ignore a sender of another block.",
			Causes:  []string{"The server is no member of the network.", "The block is not assigned to the network.", "The VLAN ID is wrong."},
			Remedy:  "See in phoenixNAP's portal that the server is an assigned member and that the block is assigned; watch with `tcpdump` whether frames of the VLAN come in at all.",
			Reasons: []string{"GatewaySilent", "GatewayNotAsked"},
		},
	}
}
