package check

// Checks about the routers of the blocks.
const (
	GatewayAnswers ID = "PN301"
	GatewayAlone   ID = "PN302"
	GatewayLatency ID = "PN303"
)

// gatewayChecks are about the routers of the blocks.
func gatewayChecks() []Check {
	return []Check{
		{
			ID: GatewayAnswers, Title: "the gateway answers", Severity: Error, Wire: true,
			DependsOn: []ID{Membership, VLANAlone, NodeAddress}, judge: judgeGateway,
			Meaning: "The gateway of each block answers an ARP request on the VLAN interface. Only silence towards an address of the same block is a failure, and only in two samples of three requests each; a router may ignore a sender of another block.",
			Causes:  []string{"The server is no member of the network.", "The block is not assigned to the network.", "The VLAN ID is wrong."},
			Remedy:  "See in phoenixNAP's portal that the server is an assigned member and that the block is assigned; watch with `tcpdump` whether frames of the VLAN come in at all.",
			Reasons: []string{"GatewaySilent", "GatewayNotAsked"},
		},
		{
			ID: GatewayAlone, Title: "one machine alone answers for the gateway", Severity: Error, Wire: true,
			DependsOn: []ID{Membership, NodeAddress}, judge: judgeGatewayAlone,
			Meaning: "One machine answers for the gateway's address of each block, it is not this node, and no permanent entry of the neighbour table says otherwise. A second one draws traffic to itself.",
			Causes: []string{
				"Somebody configured the gateway's address on a server.", "A Service was given the gateway's address by hand.",
				"The router was replaced, and a permanent neighbour entry still has the hardware address of the old one.",
			},
			Remedy:  "Find the machine by its hardware address, and take the address from it; delete a permanent neighbour entry.",
			Reasons: []string{"GatewayHeldHere", "GatewayAnsweredTwice", "GatewayPinned"},
		},
		{
			ID: GatewayLatency, Title: "the gateway answers quickly", Severity: Warning, Wire: true,
			DependsOn: []ID{GatewayAnswers}, judge: judgeGatewayLatency,
			Meaning: "The gateway answers an ARP request within 100 ms; on a healthy network it takes about one.",
			Causes:  []string{"The VLAN is flooded.", "This node has no processor time left.", "The gateway is overloaded."},
			Remedy:  "Look for a flood of packets on the VLAN and for busy processors; else ask phoenixNAP's support.",
			Reasons: []string{"GatewaySlow"},
		},
	}
}
