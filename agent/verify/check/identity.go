package check

import (
	"fmt"
	"net/netip"
	"slices"
)

// checkIdentity checks whether this machine is the server that the Node names: all other checks compare with what the
// controller published for that server.
func checkIdentity(v view) outcome {
	named := v.Network.ServerID
	known := v.Machine.ServerID
	if named != "" && known != "" && named != known {
		return outcome{status: Fail, reason: "OtherServer",
			expected: "server " + named, observed: fmt.Sprintf("server %s, by %s", known, v.Machine.ServerIDFrom),
			cause: fmt.Sprintf("this machine is server %s, but its Node names server %s", known, named),
			fixes: fixIdentity()}
	}
	carried, others := v.carried(), v.identifying()
	if lasting := v.stableAddresses(); len(lasting) > 0 && len(carried) == 0 && len(others) > 0 {
		return outcome{status: Fail, reason: "OtherMachine",
			expected: "one of the Node's addresses " + joined(lasting), observed: "the machine has " + joined(others),
			cause: "this machine carries none of the addresses of its Node", fixes: fixIdentity()}
	}
	switch {
	case named != "" && known != "":
		return ok(fmt.Sprintf("server %s, by %s", known, v.Machine.ServerIDFrom))
	case len(carried) > 0:
		return ok("carries the Node's address " + joined(carried))
	default:
		return notApplicable("the machine does not know its server ID, and there are no addresses to compare")
	}
}

// carried are the Node's addresses that this machine carries, without those of Services, which move.
func (v view) carried() []netip.Addr {
	var carried []netip.Addr
	for _, ip := range v.NodeAddresses {
		if !slices.Contains(v.Virtual, ip) && len(v.Holds(ip)) > 0 {
			carried = append(carried, ip)
		}
	}
	slices.SortFunc(carried, netip.Addr.Compare)
	return carried
}

// identifying are the machine's addresses apart from those on the VLAN interface: a machine that has lost all of them
// is not another machine.
func (v view) identifying() []netip.Addr {
	var addresses []netip.Addr
	for _, a := range v.Addresses {
		l := v.LinkIndexed(a.LinkIndex)
		if l == nil || l.Name == "lo" || v.vlan != nil && l.Index == v.vlan.Index || v.isVirtual(a) ||
			!a.Prefix.Addr().IsGlobalUnicast() {
			continue
		}
		switch l.Type {
		case "device", "bond", "vlan":
			addresses = append(addresses, a.Prefix.Addr())
		default:
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses[:min(len(addresses), maxNames)]
}

// stableAddresses are the Node's addresses apart from those of the public network: when one of these is lost, the
// address is what is wrong, not the machine.
func (v view) stableAddresses() []netip.Addr {
	lasting := slices.DeleteFunc(slices.Clone(v.NodeAddresses), func(a netip.Addr) bool {
		_, inBlock := v.block(a)
		return inBlock || slices.Contains(v.Network.IPs, a)
	})
	slices.SortFunc(lasting, netip.Addr.Compare)
	return lasting
}

func fixIdentity() []Fix {
	return []Fix{{
		Tool: AnyTool, Commands: []string{"hostnamectl status", "cat /var/lib/cloud/data/instance-id"},
		Note: "two machines may have joined with the same name, or the agent's kubeconfig or --node-name is another " +
			"node's: give each machine its own name, delete the Node, and restart the kubelet so that it registers " +
			"again",
	}}
}
