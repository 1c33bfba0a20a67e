package check

// linkChecks are about the uplink and the VLAN interface.
func linkChecks() []Check {
	return []Check{
		{
			ID: UplinkUp, Title: "the uplink is there and up", Severity: Error,
			DependsOn: []ID{NetworkPublished}, judge: judgeUplink,
			Meaning: "The interface that carries the server's VLANs (`bond0` on a phoenixNAP server) exists, is up and has a carrier.",
			Causes: []string{
				"The bond is not configured, or down.", "No member of the bond has a link.",
				"The uplink has an unusual name.",
			},
			Remedy:  "Bring it up; name it with `--uplink` where it is not recognised.",
			Reasons: []string{"UplinkMissing", "UplinkDown", "UplinkNoCarrier"},
		},
		{
			ID: VLANInterface, Title: "the VLAN interface exists on the uplink", Severity: Error,
			DependsOn: []ID{NetworkPublished, UplinkUp}, judge: judgeVLAN,
			Meaning: "An 802.1Q interface with the network's VLAN ID sits on the uplink itself. It is found by its ID; its name does not matter.",
			Causes: []string{
				"It was never configured.", "Its ID is that of another network.", "It sits on a member of the bond instead of the bond.",
				"It tags with 802.1ad.",
			},
			Remedy:  "Configure it with the tool that owns the machine's network; the fix shows the file. `--manage=vlan` lets the agent do it.",
			Reasons: []string{"VLANInterfaceMissing", "NotAVLANInterface", "WrongVLANID", "WrongVLANProtocol", "WrongParent"},
		},
		{
			ID: VLANUp, Title: "the VLAN interface is up", Severity: Error,
			DependsOn: []ID{VLANInterface}, judge: judgeVLANUp,
			Meaning: "The VLAN interface is up, and the layer below it, too.",
			Causes:  []string{"Somebody set it down.", "The network was reconfigured.", "The uplink lost its carrier."},
			Remedy:  "Set it up, and keep it up in the configuration.",
			Reasons: []string{"VLANInterfaceDown", "VLANInterfaceNoCarrier"},
		},
		{
			ID: BondHealthy, Title: "the bond has all its members", Severity: Warning,
			DependsOn: []ID{UplinkUp}, judge: judgeBond,
			Meaning: "All members of the bond are up, and LACP has a partner. A warning: traffic flows with fewer.",
			Causes:  []string{"A cable, port or network card has failed.", "LACP is not spoken on one side."},
			Remedy:  "Look at `/proc/net/bonding/bond0`; a member without a carrier is a matter for phoenixNAP's support.",
			Reasons: []string{"BondDegraded", "NoLACPPartner"},
		},
		{
			ID: MTU, Title: "the MTU suits the Internet", Severity: Warning,
			DependsOn: []ID{VLANInterface}, judge: judgeMTU,
			Meaning: "The MTU is at most 1500, which is what passes on the way to the Internet, and at least 1280.",
			Causes:  []string{"The VLAN interface inherited 9000 from the bond."},
			Remedy:  "Set the MTU of the VLAN interface to 1500.",
			Reasons: []string{"UnusualMTU"},
		},
	}
}
