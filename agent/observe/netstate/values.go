//go:build linux

package netstate

import (
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// lacpDefaulted is the bit Defaulted of an LACP port state (IEEE 802.1AX): there is no partner.
const lacpDefaulted = 1 << 6

// linkOf converts netlink's link.
func linkOf(link netlink.Link) check.Link {
	a := link.Attrs()
	l := check.Link{
		Index: a.Index, Name: a.Name, Type: link.Type(), MAC: macText(a.HardwareAddr), MTU: a.MTU,
		Up: a.RawFlags&unix.IFF_UP != 0, LowerUp: a.RawFlags&unix.IFF_LOWER_UP != 0,
		OperState: a.OperState.String(), Master: a.MasterIndex, Alias: a.Alias,
		NoARP: a.RawFlags&unix.IFF_NOARP != 0,
	}
	if slave, ok := a.Slave.(*netlink.BondSlave); ok {
		l.Slave = &check.Slave{
			Up: slave.MiiStatus == netlink.BondLinkUp, Aggregator: int(slave.AggregatorId),
			NoPartner: slave.AdActorOperPortState&lacpDefaulted != 0, PermanentMAC: macText(slave.PermHardwareAddr),
		}
	}
	switch kind := link.(type) {
	case *netlink.Vlan:
		l.VLAN = &check.VLAN{ID: kind.VlanId, Protocol: kind.VlanProtocol.String()}
		// A parent in another namespace has an index of that namespace, which may belong to another link here.
		if a.NetNsID < 0 {
			l.Parent = a.ParentIndex
		}
	case *netlink.Bond:
		l.Bond = &check.Bond{Mode: kind.Mode.String(), MinLinks: max(0, kind.MinLinks)}
	default:
	}
	return l
}

// macText formats a hardware address in lower case; the all-zero address means that there is none.
func macText(mac net.HardwareAddr) string {
	if strings.Trim(mac.String(), "0:") == "" {
		return ""
	}
	return mac.String()
}

// addressOf converts netlink's address.
func addressOf(a netlink.Addr) (check.Address, bool) {
	if a.IPNet == nil {
		return check.Address{}, false
	}
	ip, valid := netip.AddrFromSlice(a.IP)
	bits, _ := a.Mask.Size()
	if !valid {
		return check.Address{}, false
	}
	return check.Address{
		LinkIndex:  a.LinkIndex,
		Prefix:     netip.PrefixFrom(ip.Unmap(), bits),
		Deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
	}, true
}
