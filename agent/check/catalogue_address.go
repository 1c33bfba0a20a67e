package check

// addressChecks are about the node's own address.
func addressChecks() []Check {
	return []Check{
		{
			ID: NodeAddress, Title: "the node has its own address on the VLAN interface", Severity: Error,
			DependsOn: []ID{VLANUp}, judge: judgeAddress,
			Meaning: "The VLAN interface carries the node's own IPv4 address, with the prefix length of its block. Without one the kernel neither asks nor answers by ARP as it should.",
			Causes: []string{
				"The address is missing, or on another interface.", "It has a wrong prefix length.",
				"It is not the one that the membership lists.",
			},
			Remedy:  "Configure the address that the membership lists.",
			Reasons: []string{"AddressMissing", "AddressOnWrongInterface", "WrongPrefixLength", "AddressNotRegistered"},
		},
		{
			ID: NoDuplicate, Title: "nobody else uses the node's address", Severity: Error, Wire: true,
			DependsOn: []ID{NodeAddress}, judge: judgeDuplicate,
			Meaning: "Nobody else answers an ARP probe (RFC 5227) for the node's address.",
			Causes:  []string{"Two servers were given the same address, which phoenixNAP's API allows with `force`.", "A server that was replaced still runs."},
			Remedy:  "Compare the addresses of the servers in the network, and give one of them another.",
			Reasons: []string{"AddressInUse"},
		},
	}
}
