//go:build linux

package netstate

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

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
	addresses, err := Dump(ctx, func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var values []check.Address
	for _, a := range addresses {
		if value, valid := addressOf(a); valid {
			values = append(values, value)
		}
	}
	return values, nil
}
