package pnap

import (
	"context"
	"net/netip"

	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"
)

// JoinNetwork makes a server a member of a public network with the given addresses, each in an assigned block of the
// network. force allows a member without addresses, and addresses that another member has. The API answers before the
// switch ports are configured: the status of the Membership shows when they are. It answers with a conflict while the
// network or the server is changing and when the server is already a member.
func (c *Client) JoinNetwork(ctx context.Context, serverID, networkID string, ips []netip.Addr, force bool) error {
	const op = "join server"
	ctx = asking(ctx, op)
	membership := bmcapi.NewServerPublicNetwork(networkID)
	texts := make([]string, len(ips)) // not nil, which the SDK would leave out
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	membership.SetIps(texts)
	call := c.servers.ServersAPI.ServersServerIdPublicNetworksPost(ctx, serverID).ServerPublicNetwork(*membership)
	if force {
		call = call.Force(true)
	}
	_, err := request(ctx, c, op, serverID+" to public network "+networkID, call.Execute)
	return err
}

// LeaveNetwork removes a server from a public network. Its VLAN closes at once; the membership is removed some time
// later.
func (c *Client) LeaveNetwork(ctx context.Context, serverID, networkID string) error {
	const op = "take server"
	ctx = asking(ctx, op)
	call := c.servers.ServersAPI.ServersServerIdPublicNetworksDelete(ctx, serverID, networkID)
	_, err := request(ctx, c, op, serverID+" out of public network "+networkID, call.Execute)
	return err
}
