package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Checks about the node's own address.
const (
	NodeAddress ID = "PN201"
	NoDuplicate ID = "PN202"
	BlocksHere  ID = "PN203"
)

var addressChecks = []Check{
	{
		ID: NodeAddress, Title: "the node has its own address on the VLAN interface", Severity: Error,
		DependsOn: []ID{VLANUp}, evaluate: checkAddress,
		Meaning: "The VLAN interface carries the node's own IPv4 address, with the prefix length of its block. " +
			"Without one the kernel neither sends nor answers ARP requests correctly.",
		Causes: []string{"The address is missing, or on another interface.", "It has a wrong prefix length.",
			"It is not the one that the membership lists."},
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
		Meaning: "The kernel reaches the gateway and the machines of the blocks through the VLAN interface, and no " +
			"other interface carries an address or a subnet of the blocks. The check fails when the gateway is " +
			"routed through another interface, and warns otherwise.",
		Causes: []string{"The address was configured on two interfaces.",
			"A container bridge or tunnel was given a subnet that overlaps a block.",
			"A static route or a rule sends the block's traffic to another interface."},
		Remedy:  "Delete the address, route or rule, and remove it from the configuration.",
		Reasons: []string{"GatewayRoutedElsewhere", "GatewayUnroutable", "BlockOnOtherInterface"},
	},
}

func checkAddress(v view) Finding {
	wanted := v.memberIPs()
	if len(wanted) == 0 {
		return checkAnyAddress(v)
	}
	name := v.vlan.Name
	expected := fmt.Sprintf("one of %s on %s", joined(wanted), name)
	observed := fmt.Sprintf("%s: %s", name, joined(v.own))
	for _, p := range v.own {
		if slices.Contains(wanted, p.Addr()) {
			return checkPrefix(v, p, observed)
		}
	}
	for _, p := range v.own {
		if _, inBlock := v.block(p.Addr()); inBlock {
			if o := checkPrefix(v, p, observed); o.Status == Fail {
				return o
			}
			return Finding{Status: Warn, Reason: "AddressNotRegistered", Expected: expected, Observed: observed,
				Cause: fmt.Sprintf("%s carries %s, which the server's membership does not list", name, p.Addr()),
				Fixes: anyTool(fmt.Sprintf("list %s among the server's addresses in network %s, so that no other "+
					"server gets it", p.Addr(), v.Network.ID))}
		}
	}
	fixes := fixAddress(v, wanted[0])
	for _, ip := range wanted {
		if holders := v.Holds(ip); len(holders) > 0 {
			return Finding{Status: Fail, Reason: "AddressOnWrongInterface", Expected: expected,
				Observed: ip.String() + " on " + strings.Join(holders, ", "),
				Cause:    fmt.Sprintf("%s is on %s instead of %s", ip, strings.Join(holders, ", "), name), Fixes: fixes}
		}
	}
	return Finding{Status: Fail, Reason: "AddressMissing", Expected: expected, Observed: observed,
		Cause: fmt.Sprintf("%s does not carry the node's address %s", name, wanted[0]), Fixes: fixes}
}

// checkAnyAddress checks a node whose membership lists no address: the interface must still carry some IPv4
// address, because the kernel neither sends nor answers ARP requests correctly on an interface without one.
func checkAnyAddress(v view) Finding {
	observed := fmt.Sprintf("%s: %s", v.vlan.Name, joined(v.own))
	if len(v.own) > 0 {
		return ok(observed)
	}
	if len(v.blocks4()) == 0 {
		return notApplicable("neither an address of the server nor a block is known yet")
	}
	return Finding{Status: Fail, Reason: "AddressMissing", Expected: "an IPv4 address on " + v.vlan.Name,
		Observed: observed, Cause: v.vlan.Name + " does not carry an own IPv4 address of the node",
		Fixes: anyTool(fmt.Sprintf("assign an address of one of the blocks %s to the server in phoenixNAP's portal "+
			"(network %s), then configure it on %s", v.blockTexts(), v.Network.ID, v.vlan.Name))}
}

// checkPrefix compares the prefix length with the block's. One that still reaches the gateway only warns.
func checkPrefix(v view, p netip.Prefix, observed string) Finding {
	block, known := v.block(p.Addr())
	if !known || p.Bits() == block.CIDR.Bits() {
		return ok(observed)
	}
	o := Finding{Status: Warn, Reason: "WrongPrefixLength",
		Expected: fmt.Sprintf("%s/%d", p.Addr(), block.CIDR.Bits()), Observed: observed,
		Cause: fmt.Sprintf("%s on %s has prefix length %d, its block %s has %d", p.Addr(), v.vlan.Name, p.Bits(),
			block.CIDR, block.CIDR.Bits()),
		Fixes: fixAddress(v, p.Addr())}
	if r, _ := v.route(RouteQuestion{Destination: block.Gateway}); !p.Contains(block.Gateway) &&
		r.Interface != v.vlan.Name {
		o.Status = Fail
	}
	return o
}

func checkDuplicate(v view) Finding {
	checked := 0
	for _, p := range v.own {
		answer, asked := v.arp(p.Addr())
		if !asked || answer.Error != "" {
			continue
		}
		checked++
		if len(answer.MACs) > 0 {
			return Finding{Status: Fail, Reason: "AddressInUse", Expected: "no answer for " + p.Addr().String(),
				Observed: "answered by " + strings.Join(answer.MACs, ", "),
				Cause:    fmt.Sprintf("another machine answers for the node's address %s", p.Addr()),
				Fixes: anyTool(fmt.Sprintf("two servers carry %s: compare the addresses of the servers in network %s "+
					"and change one of them", p.Addr(), v.Network.ID),
					fmt.Sprintf("arping -D -c 3 -I %s %s", v.vlan.Name, p.Addr()))}
		}
	}
	if checked == 0 {
		return notApplicable("no ARP request was sent")
	}
	return ok(joined(v.own) + " not claimed by another machine")
}
