//go:build linux

package netstate

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
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
