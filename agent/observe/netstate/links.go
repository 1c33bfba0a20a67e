//go:build linux

package netstate

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// skipStatistics makes the kernel leave out the counters in a dump of links (RTEXT_FILTER_SKIP_STATS): they are most
// of its work on a node with hundreds of pods, and they are not used here.
const skipStatistics = 1 << 3

// listLinks dumps all links.
func listLinks() ([]check.Link, error) {
	return askLinks(unix.NLM_F_DUMP, nl.NewIfInfomsg(unix.AF_UNSPEC))
}

// readLink reads one link.
func readLink(index int) (check.Link, error) {
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index) //nolint:gosec // the kernel's numbers are of that size
	links, err := askLinks(0, message)
	if err != nil {
		return check.Link{}, fmt.Errorf("read network interface %d: %w", index, err)
	}
	if len(links) != 1 {
		return check.Link{}, fmt.Errorf("read network interface %d: %d answers", index, len(links))
	}
	return links[0], nil
}

// askLinks requests links. The fields of a bond that the netlink package does not read are read here.
func askLinks(flags int, message *nl.IfInfomsg) ([]check.Link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, flags)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	links := make([]check.Link, 0, len(messages))
	for _, m := range messages {
		link, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, fmt.Errorf("read a link: %w", err)
		}
		l := linkOf(link)
		if l.Bond != nil {
			l.Bond.Aggregator, l.Bond.PartnerMAC = activeAggregator(m)
		}
		links = append(links, l)
	}
	return links, nil
}

// activeAggregator reads IFLA_BOND_AD_INFO of a link message: the active aggregator and its partner. Both are zero
// where the bond does not use LACP.
func activeAggregator(message []byte) (aggregator int, partner string) {
	if len(message) < unix.SizeofIfInfomsg {
		return 0, ""
	}
	info := nested(message[unix.SizeofIfInfomsg:], unix.IFLA_LINKINFO, nl.IFLA_INFO_DATA, nl.IFLA_BOND_AD_INFO)
	attributes, err := nl.ParseRouteAttr(info)
	if err != nil {
		return 0, ""
	}
	for _, a := range attributes {
		switch {
		case a.Attr.Type == nl.IFLA_BOND_AD_INFO_AGGREGATOR && len(a.Value) >= 2:
			aggregator = int(binary.NativeEndian.Uint16(a.Value))
		case a.Attr.Type == nl.IFLA_BOND_AD_INFO_PARTNER_MAC && len(a.Value) >= 6:
			partner = macText(net.HardwareAddr(a.Value[:6]))
		default:
		}
	}
	return aggregator, partner
}

// nested follows a path of nested attributes; the result is empty when one of them is missing.
func nested(raw []byte, path ...uint16) []byte {
	for _, step := range path {
		attributes, err := nl.ParseRouteAttr(raw)
		if err != nil {
			return nil
		}
		raw = nil
		for _, a := range attributes {
			if a.Attr.Type&^unix.NLA_F_NESTED == step {
				raw = a.Value
			}
		}
	}
	return raw
}

// Link is a network interface and its group (IFLA_GROUP), which only the owner of the interface needs.
type Link struct {
	check.Link
	Group int
}

// Links lists the network interfaces of the calling process's namespace.
func Links(ctx context.Context) ([]Link, error) {
	links, err := Dump(ctx, netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	values := make([]Link, len(links))
	for i, l := range links {
		values[i] = Link{Link: linkOf(l), Group: int(l.Attrs().Group)}
	}
	return values, nil
}

// Addresses lists the IPv4 addresses of the calling process's namespace.
func Addresses(ctx context.Context) ([]check.Address, error) {
	return listAddresses(ctx, netlink.FAMILY_V4)
}

func listAddresses(ctx context.Context, family int) ([]check.Address, error) {
	addresses, err := Dump(ctx, func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var values []check.Address
	for _, a := range addresses {
		if value, ok := addressOf(a); ok {
			values = append(values, value)
		}
	}
	return values, nil
}

// lacpDefaulted is the bit Defaulted of an LACP port state (IEEE 802.1AX): there is no partner.
const lacpDefaulted = 1 << 6

// linkOf converts netlink's link.
func linkOf(link netlink.Link) check.Link {
	a := link.Attrs()
	l := check.Link{
		Index: a.Index, Name: a.Name, Type: link.Type(), MAC: macText(a.HardwareAddr), MTU: a.MTU,
		Up: a.RawFlags&unix.IFF_UP != 0, LowerUp: a.RawFlags&unix.IFF_LOWER_UP != 0,
		OperState: a.OperState.String(), Master: a.MasterIndex, Alias: a.Alias,
		NoARP: a.RawFlags&unix.IFF_NOARP != 0, XDP: a.Xdp != nil && a.Xdp.Attached,
	}
	if slave, ok := a.Slave.(*netlink.BondSlave); ok {
		l.Slave = &check.Slave{
			Up: slave.MiiStatus == netlink.BondLinkUp, Aggregator: int(slave.AggregatorId),
			NoPartner: slave.AdActorOperPortState&lacpDefaulted != 0, PermanentMAC: macText(slave.PermHardwareAddr),
		}
	}
	// A parent in another namespace has an index of that namespace, which may belong to another link here.
	parent := 0
	if a.NetNsID < 0 {
		parent = a.ParentIndex
	}
	switch kind := link.(type) {
	case *netlink.Vlan:
		l.VLAN = &check.VLAN{ID: kind.VlanId, Protocol: kind.VlanProtocol.String()}
		l.Parent = parent
	case *netlink.Macvlan, *netlink.Macvtap, *netlink.IPVlan, *netlink.IPVtap:
		l.Parent = parent
	case *netlink.Vxlan:
		l.Parent = kind.VtepDevIndex
	case *netlink.Bridge:
		l.VLANAware = kind.VlanFiltering != nil && *kind.VlanFiltering
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

// addressOf converts netlink's address; ok is false where it has none.
func addressOf(a netlink.Addr) (address check.Address, ok bool) {
	prefix := prefixOf(a.IPNet)
	return check.Address{
		LinkIndex: a.LinkIndex, Prefix: prefix, Deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
	}, prefix.Addr().IsValid()
}
