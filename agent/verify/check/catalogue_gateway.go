package check

// Checks about the routers of the blocks.
const (
	GatewayAnswers ID = "PN301"
	GatewayUnique  ID = "PN302"
	GatewayLatency ID = "PN303"
)

// gatewayChecks are about the routers of the blocks.
func gatewayChecks() []Check {
	return []Check{
		{
			ID: GatewayAnswers, Title: "the gateway answers", Severity: Error, Wire: true,
			DependsOn: []ID{Membership, VLANUnique, NodeAddress}, evaluate: checkGateway,
			Meaning: "The gateway of each block answers an ARP request on the VLAN interface. A missing reply is a " +
				"failure only if the node asked with an address of the same block, and only in two samples of three " +
				"requests each; a router may ignore a sender of another block.",
			Causes: []string{"The server is not a member of the network.", "The block is not assigned to the network.",
				"The VLAN ID is wrong."},
			Remedy: "Check in phoenixNAP's portal that the server is an assigned member and that the block is " +
				"assigned; check with `tcpdump` whether frames of the VLAN arrive.",
			Reasons: []string{"GatewaySilent", "GatewayNotAsked"},
		},
		{
			ID: GatewayUnique, Title: "only one machine answers for the gateway", Severity: Error, Wire: true,
			DependsOn: []ID{Membership, NodeAddress}, evaluate: checkUniqueGateway,
			Meaning: "Exactly one machine answers for the gateway's address of each block, it is not this node, and " +
				"no permanent neighbour entry points to another machine. A second machine attracts part of the " +
				"traffic.",
			Causes: []string{
				"The gateway's address was configured on a server.",
				"A Service was given the gateway's address by hand.",
				"The router was replaced, and a permanent neighbour entry still has the hardware address of the old " +
					"one.",
			},
			Remedy: "Find the machine by its hardware address, and remove the address from it; delete a permanent " +
				"neighbour entry.",
			Reasons: []string{"GatewayHeldHere", "GatewayAnsweredTwice", "GatewayPinned"},
		},
		{
			ID: GatewayLatency, Title: "the gateway answers quickly", Severity: Warning, Wire: true,
			DependsOn: []ID{GatewayAnswers}, evaluate: checkGatewayLatency,
			Meaning: "The gateway answers an ARP request within 100 ms; on a healthy network it takes about 1 ms.",
			Causes: []string{"The VLAN is flooded.", "The CPUs of this node are saturated.",
				"The gateway is overloaded."},
			Remedy: "Check for a flood of packets on the VLAN and for busy CPUs; otherwise contact phoenixNAP " +
				"support.",
			Reasons: []string{"GatewaySlow"},
		},
	}
}
