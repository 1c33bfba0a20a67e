package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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

var linkChecks = []Check{
	{
		ID: UplinkUp, Title: "the uplink exists and is up", Severity: Error,
		DependsOn: []ID{NetworkPublished, Identity}, evaluate: checkUplink,
		Meaning: "The interface that carries the server's VLANs (`bond0` on a phoenixNAP server, or a bridge that has " +
			"it as its port) exists, is up and has a carrier.",
		Causes: []string{"The bond is not configured, or down.", "No member of the bond has a link.",
			"The uplink has an unusual name.", "Several may be meant: neither an address of the network nor the " +
				"default route shows which one leads to it."},
		Remedy: "Bring it up; without a carrier, check the cables and the switch ports of its members. If it is not " +
			"recognised, name it with `--uplink`.",
		Reasons: []string{"UplinkMissing", "UplinkAmbiguous", "UplinkDown", "UplinkNoCarrier"},
	},
	{
		ID: VLANInterface, Title: "the VLAN interface exists on the uplink", Severity: Error,
		DependsOn: []ID{NetworkPublished, UplinkUp}, evaluate: checkVLAN,
		Meaning: "An 802.1Q interface with the network's VLAN ID sits on the uplink itself, or on a bridge over it. " +
			"It is found by its ID; its name does not matter. One on another bond belongs to another network.",
		Causes: []string{"It was never configured.", "Its ID is that of another network.",
			"It sits on a member of the bond instead of the bond.", "It tags with 802.1ad.",
			"It was made a port of a bridge, which takes its packets."},
		Remedy: "Configure it with the tool that owns the machine's network; the fix shows the file. `--manage=vlan` " +
			"lets the agent do it.",
		Reasons: []string{"VLANInterfaceMissing", "NotAVLANInterface", "WrongVLANID", "WrongVLANProtocol",
			"WrongParent", "VLANInterfaceEnslaved"},
	},
	{
		ID: VLANUp, Title: "the VLAN interface is up", Severity: Error,
		DependsOn: []ID{VLANInterface}, evaluate: checkVLANUp,
		Meaning: "The VLAN interface and the layer below it are up.",
		Causes: []string{"The interface was set down.", "The network was reconfigured.",
			"The uplink lost its carrier."},
		Remedy: "Set it up, and keep it up in the configuration. If the layer below has no carrier, check the cables " +
			"and the switch ports of the bond's members.",
		Reasons: []string{"VLANInterfaceDown", "VLANInterfaceNoCarrier"},
	},
	{
		ID: BondHealthy, Title: "the bond has all its members", Severity: Warning,
		DependsOn: []ID{UplinkUp}, evaluate: checkBond,
		Meaning: "The bond speaks LACP (802.3ad) or has one active member, all members are up, and with LACP each " +
			"member has a partner and all are in one aggregator. This check only warns: traffic still flows with " +
			"fewer members.",
		Causes: []string{"A cable, port or network card has failed.", "LACP is not enabled on one side.",
			"The members are connected to switches that do not act as one.",
			"The bond was configured with a mode that the switches do not expect."},
		Remedy: "Read `/proc/net/bonding/bond0`. Set up a member that was set down; for one without a carrier or a " +
			"partner, contact phoenixNAP support.",
		Reasons: []string{"UnexpectedBondMode", "BondDegraded", "NoLACPPartner", "MemberWithoutPartner",
			"AggregatorsDiffer"},
	},
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
			"depends on the interface below. The check warns while a gateway is heard; it fails when no gateway is " +
			"heard and the other interface is on a member of the bond, where it takes the frames first.",
		Causes: []string{"The interface was configured twice, on the bond and on a member of it.",
			"kube-vip is configured to create VLAN interfaces (`kube-vip.io/serviceVLAN`)."},
		Remedy:  "Delete the one that is not on the uplink, and remove it from the configuration.",
		Reasons: []string{"SecondVLANInterface", "FramesTaken"},
	},
}

const (
	protocol8021Q = "802.1q"
	// internetMTU is what passes on the way to the Internet.
	internetMTU = 1500
	// minMTU is the least MTU of IPv6 (RFC 8200, section 5); below it neither family works as hosts expect.
	minMTU = 1280
)

func checkUplink(v view) Finding {
	if len(v.meant) > 0 {
		return Finding{Status: Fail, Reason: "UplinkAmbiguous", Expected: "one uplink",
			Observed: "possible: " + strings.Join(v.meant, ", "),
			Cause:    "nothing shows which interface leads to the public network: " + strings.Join(v.meant, ", "),
			Fixes: anyTool("set --uplink to the interface that carries the server's public network",
				"ip -br link show", "ip route show default")}
	}
	if v.uplink == nil {
		names := sortedNames(v.Links, func(l Link) (string, bool) { return l.Name, l.Name != "lo" })
		return Finding{Status: Fail, Reason: "UplinkMissing", Expected: cmp.Or(v.Uplink, "a bond, such as bond0"),
			Observed: "interfaces " + names, Cause: "no uplink to carry the VLAN was found",
			Fixes: anyTool("set --uplink to the interface that carries the server's VLANs")}
	}
	u := v.uplink
	if v.trunk != nil && u.Up && (!v.trunk.Up || !v.trunk.LowerUp) {
		u = v.trunk // a bridge has a carrier as long as one of its ports has
	}
	f := Finding{Status: Fail, Expected: u.Name + " up with carrier", Observed: u.Name + " " + u.state()}
	switch {
	case !u.Up:
		f.Reason = "UplinkDown"
		f.Cause = u.Name + " is down"
		f.Fixes = fixUplinkUp(v, u.Name)
	case !u.LowerUp:
		f.Reason = "UplinkNoCarrier"
		f.Cause = u.Name + " has no carrier"
		f.Fixes = fixNoCarrier(v)
	default:
		return ok(f.Observed)
	}
	return f
}

func checkVLAN(v view) Finding {
	id := v.Network.VLAN
	fail := func(reason, observed, cause string) Finding {
		return Finding{Status: Fail, Reason: reason, Observed: observed, Cause: cause, Fixes: fixVLAN(v),
			Expected: fmt.Sprintf("a VLAN interface with ID %d (802.1Q) on %s", id, v.uplink.Name)}
	}
	l := v.vlan
	switch {
	case l == nil:
		return checkMissingVLAN(v, fail)
	case l.VLAN == nil:
		return fail("NotAVLANInterface", l.Name+" is of type "+l.Type, l.Name+" is not a VLAN interface")
	case l.VLAN.ID != id:
		return fail("WrongVLANID", fmt.Sprintf("%s has VLAN ID %d", l.Name, l.VLAN.ID),
			fmt.Sprintf("%s has VLAN ID %d, the network has %d", l.Name, l.VLAN.ID, id))
	case l.VLAN.Protocol != protocol8021Q:
		return fail("WrongVLANProtocol", l.Name+" uses "+l.VLAN.Protocol,
			fmt.Sprintf("%s tags with %s, the switch expects %s", l.Name, l.VLAN.Protocol, protocol8021Q))
	case l.Parent != v.uplink.Index:
		below := v.parentName(*l)
		return fail("WrongParent", l.Name+" is on "+below,
			fmt.Sprintf("%s is on %s instead of %s", l.Name, below, v.uplink.Name))
	case v.enslavedTo(*l) != "":
		o := fail("VLANInterfaceEnslaved", l.Name+" is a port of "+v.enslavedTo(*l),
			fmt.Sprintf("%s is a port of %s, which takes its packets", l.Name, v.enslavedTo(*l)))
		o.Fixes = fixEnslaved(v)
		return o
	default:
		return ok(fmt.Sprintf("%s: VLAN ID %d, %s, on %s", l.Name, l.VLAN.ID, l.VLAN.Protocol, v.uplink.Name))
	}
}

// enslavedTo names the bridge or bond that a link is a port of. A VRF leaves addresses and packets with the link.
func (v view) enslavedTo(l Link) string {
	if master := v.LinkIndexed(l.Master); l.Master != 0 && master != nil && master.Type != "vrf" {
		return master.Name
	}
	return ""
}

// checkMissingVLAN distinguishes an interface with a wrong ID from one that is absent.
func checkMissingVLAN(v view, fail func(reason, observed, cause string) Finding) Finding {
	id := v.Network.VLAN
	if v.Interface != "" {
		return fail("VLANInterfaceMissing", "no "+v.Interface, "there is no interface "+v.Interface)
	}
	if l := v.misnumbered(); l != nil {
		return fail("WrongVLANID", fmt.Sprintf("%s has VLAN ID %d", l.Name, l.VLAN.ID),
			fmt.Sprintf("%s has VLAN ID %d, the network has %d", l.Name, l.VLAN.ID, id))
	}
	names := sortedNames(v.Links, func(l Link) (string, bool) {
		if l.VLAN == nil {
			return "", false
		}
		return fmt.Sprintf("%s (ID %d on %s)", l.Name, l.VLAN.ID, v.parentName(l)), true
	})
	return fail("VLANInterfaceMissing", "VLAN interfaces: "+names,
		fmt.Sprintf("there is no VLAN interface with ID %d on %s", id, v.uplink.Name))
}

// misnumbered finds the interface that was meant to be this one: it has the number in its name, or the node's address.
// One with further addresses has a purpose of its own.
func (v view) misnumbered() *Link {
	return v.link(func(l Link) bool {
		if !v.onTrunk(l) || v.isVLAN(l) {
			return false
		}
		if strings.HasSuffix(l.Name, fmt.Sprintf(".%d", v.Network.VLAN)) ||
			l.Name == fmt.Sprintf("vlan%d", v.Network.VLAN) {
			return true
		}
		member := false
		for _, a := range v.Addresses {
			if a.LinkIndex == l.Index && a.Prefix.Addr().Is4() {
				member = slices.Contains(v.Network.IPs, a.Prefix.Addr())
				if !member {
					return false
				}
			}
		}
		return member
	})
}

func checkVLANUp(v view) Finding {
	l := v.vlan
	f := Finding{Status: Fail, Expected: l.Name + " up", Observed: l.Name + " " + l.state()}
	switch {
	case l.Up && l.LowerUp && (l.OperState == "up" || l.OperState == "unknown"):
		return ok(f.Observed)
	case l.Up:
		f.Reason = "VLANInterfaceNoCarrier"
		f.Cause = l.Name + " is up, but the layer below is not (" + l.OperState + ")"
		f.Fixes = fixNoCarrier(v)
	default:
		f.Reason = "VLANInterfaceDown"
		f.Cause = l.Name + " is down"
		f.Fixes = fixLinkUp(l.Name, "", restartInterface(l.Name)...)
	}
	return f
}

func checkMTU(v view) Finding {
	mtu := v.vlan.MTU
	observed := fmt.Sprintf("%s: MTU %d", v.vlan.Name, mtu)
	if mtu >= minMTU && mtu <= internetMTU {
		return ok(observed)
	}
	return Finding{Status: Warn, Reason: "UnusualMTU", Expected: fmt.Sprintf("MTU %d", internetMTU), Observed: observed,
		Cause: fmt.Sprintf("%s has MTU %d; the path to the Internet carries %d", v.vlan.Name, mtu, internetMTU),
		Fixes: fixMTU(v)}
}

func (l Link) state() string {
	admin := "down"
	if l.Up {
		admin = "up"
	}
	return fmt.Sprintf("admin %s, operational %s", admin, l.OperState)
}

func (v view) parentName(l Link) string {
	if parent := v.LinkIndexed(l.Parent); parent != nil {
		return parent.Name
	}
	return "an interface of another network namespace"
}
