package check

// Checks about the uplink and the VLAN interface.
const (
	UplinkUp        ID = "PN101"
	VLANInterface   ID = "PN102"
	VLANUp          ID = "PN103"
	BondHealthy     ID = "PN104"
	MTU             ID = "PN105"
	HardwareAddress ID = "PN106"
	VLANUnique      ID = "PN107"
)

// linkChecks are about the state of the uplink and the VLAN interface.
func linkChecks() []Check {
	return []Check{
		{
			ID: UplinkUp, Title: "the uplink exists and is up", Severity: Error,
			DependsOn: []ID{NetworkPublished, Identity}, evaluate: checkUplink,
			Meaning: "The interface that carries the server's VLANs (`bond0` on a phoenixNAP server) exists, is up " +
				"and has a carrier.",
			Causes: []string{
				"The bond is not configured, or down.", "No member of the bond has a link.",
				"The uplink has an unusual name.",
			},
			Remedy: "Bring it up; without a carrier, check the cables and the switch ports of its members. If it is " +
				"not recognised, name it with `--uplink`.",
			Reasons: []string{"UplinkMissing", "UplinkDown", "UplinkNoCarrier"},
		},
		{
			ID: VLANInterface, Title: "the VLAN interface exists on the uplink", Severity: Error,
			DependsOn: []ID{NetworkPublished, UplinkUp}, evaluate: checkVLAN,
			Meaning: "An 802.1Q interface with the network's VLAN ID sits on the uplink itself. It is found by its " +
				"ID; its name does not matter.",
			Causes: []string{
				"It was never configured.", "Its ID is that of another network.",
				"It sits on a member of the bond instead of the bond.",
				"It tags with 802.1ad.", "It was made a port of a bridge, which takes its packets.",
			},
			Remedy: "Configure it with the tool that owns the machine's network; the fix shows the file. " +
				"`--manage=vlan` lets the agent do it.",
			Reasons: []string{"VLANInterfaceMissing", "NotAVLANInterface", "WrongVLANID", "WrongVLANProtocol",
				"WrongParent", "VLANInterfaceEnslaved"},
		},
		{
			ID: VLANUp, Title: "the VLAN interface is up", Severity: Error,
			DependsOn: []ID{VLANInterface}, evaluate: checkVLANUp,
			Meaning: "The VLAN interface and the layer below it are up.",
			Causes: []string{"The interface was set down.", "The network was reconfigured.",
				"The uplink lost its carrier."},
			Remedy: "Set it up, and keep it up in the configuration. If the layer below has no carrier, check the " +
				"cables and the switch ports of the bond's members.",
			Reasons: []string{"VLANInterfaceDown", "VLANInterfaceNoCarrier"},
		},
		{
			ID: BondHealthy, Title: "the bond has all its members", Severity: Warning,
			DependsOn: []ID{UplinkUp}, evaluate: checkBond,
			Meaning: "The bond speaks LACP (802.3ad) or has one active member, all members are up, and with LACP " +
				"each member has a partner and all are in one aggregator. This check only warns: traffic still flows " +
				"with fewer members.",
			Causes: []string{
				"A cable, port or network card has failed.", "LACP is not enabled on one side.",
				"The members are connected to switches that do not act as one.",
				"The bond was configured with a mode that the switches do not expect.",
			},
			Remedy: "Read `/proc/net/bonding/bond0`; for a member without a carrier or a partner, contact " +
				"phoenixNAP support.",
			Reasons: []string{"UnexpectedBondMode", "BondDegraded", "NoLACPPartner", "MemberWithoutPartner",
				"AggregatorsDiffer"},
		},
	}
}

// vlanChecks are about the properties of the VLAN interface.
func vlanChecks() []Check {
	return []Check{
		{
			ID: MTU, Title: "the MTU fits the Internet", Severity: Warning,
			DependsOn: []ID{VLANInterface}, evaluate: checkMTU,
			Meaning: "The MTU is at most 1500, which is what the path to the Internet carries, and at least 1280.",
			Causes:  []string{"The VLAN interface inherited 9000 from the bond."},
			Remedy:  "Set the MTU of the VLAN interface to 1500.",
			Reasons: []string{"UnusualMTU"},
		},
		{
			ID: HardwareAddress, Title: "the VLAN interface has the hardware address of its uplink", Severity: Warning,
			DependsOn: []ID{VLANInterface}, evaluate: checkHardwareAddress,
			Meaning: "The VLAN interface has the hardware address of the uplink, which it gets when it is created. A " +
				"switch that limits the addresses of a port may drop frames of another address, and the network card " +
				"must run in promiscuous mode to receive any.",
			Causes: []string{"The configuration gives the VLAN interface an address of its own.",
				"The bond's address changed after the VLAN interface was given one."},
			Remedy:  "Remove the hardware address from the configuration of the VLAN interface.",
			Reasons: []string{"ForeignHardwareAddress"},
		},
		{
			ID: VLANUnique, Title: "only one interface carries the VLAN", Severity: Error, Wire: true,
			DependsOn: []ID{VLANInterface}, evaluate: checkUniqueVLAN,
			Meaning: "No other VLAN interface has the same ID: of two, only one receives the frames, and which one " +
				"depends on the interface below. The check warns while a gateway is heard; it fails when no gateway " +
				"is heard and the other interface is on a member of the bond, where it takes the frames first.",
			Causes: []string{"The interface was configured twice, on the bond and on a member of it.",
				"kube-vip is configured to create VLAN interfaces (`kube-vip.io/serviceVLAN`)."},
			Remedy:  "Delete the one that is not on the uplink, and remove it from the configuration.",
			Reasons: []string{"SecondVLANInterface", "FramesTaken"},
		},
	}
}
