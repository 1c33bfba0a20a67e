package check

// Checks about the node's own address.
const (
	NodeAddress ID = "PN201"
	NoDuplicate ID = "PN202"
	BlocksHere  ID = "PN203"
)

// addressChecks are about the node's own address.
func addressChecks() []Check {
	return []Check{
		{
			ID: NodeAddress, Title: "the node has its own address on the VLAN interface", Severity: Error,
			DependsOn: []ID{VLANUp}, evaluate: checkAddress,
			Meaning: "The VLAN interface carries the node's own IPv4 address, with the prefix length of its block. " +
				"Without one the kernel neither sends nor answers ARP requests correctly.",
			Causes: []string{
				"The address is missing, or on another interface.", "It has a wrong prefix length.",
				"It is not the one that the membership lists.",
			},
			Remedy:  "Configure the address that the membership lists.",
			Reasons: []string{"AddressMissing", "AddressOnWrongInterface", "WrongPrefixLength", "AddressNotRegistered"},
		},
		{
			ID: NoDuplicate, Title: "no other machine uses the node's address", Severity: Error, Wire: true,
			DependsOn: []ID{NodeAddress}, evaluate: checkDuplicate,
			Meaning: "No other machine answers an ARP probe (RFC 5227) for the node's address.",
			Causes: []string{"Two servers were given the same address, which phoenixNAP's API allows with `force`.",
				"A server that was replaced still runs."},
			Remedy:  "Compare the addresses of the servers in the network, and change one of them.",
			Reasons: []string{"AddressInUse"},
		},
		{
			ID: BlocksHere, Title: "no other interface has addresses of the blocks", Severity: Error,
			DependsOn: []ID{NodeAddress}, evaluate: checkOtherInterfaces,
			Meaning: "The kernel reaches the gateway and the machines of the blocks through the VLAN interface, and " +
				"no other interface carries an address or a subnet of the blocks. The check fails when the gateway " +
				"is routed through another interface, and warns otherwise.",
			Causes: []string{
				"The address was configured on two interfaces.",
				"A container bridge or tunnel was given a subnet that overlaps a block.",
				"A static route or a rule sends the block's traffic to another interface.",
			},
			Remedy:  "Delete the address, route or rule, and remove it from the configuration.",
			Reasons: []string{"GatewayRoutedElsewhere", "GatewayUnroutable", "BlockOnOtherInterface"},
		},
	}
}
