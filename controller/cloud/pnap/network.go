package pnap

import (
	"context"
	"net/netip"

	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// Network returns the public network with the given ID, with its blocks and members.
func (c *Client) Network(ctx context.Context, id string) (plan.Network, error) {
	ctx = withOperation(ctx, "get public network")
	return get(ctx, c, id, decodeNetwork, c.networks.PublicNetworksAPI.PublicNetworksNetworkIdGet(ctx, id).Execute)
}

// AssignBlock assigns an unassigned block to a public network. The API answers before it is done: the block's status
// shows the progress.
func (c *Client) AssignBlock(ctx context.Context, networkID, blockID string) error {
	ctx = withOperation(ctx, "assign IP block")
	call := c.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksPost(ctx, networkID).
		PublicNetworkIpBlockCreate(*networkapi.NewPublicNetworkIpBlockCreate(blockID))
	return send(ctx, c, blockID+" to public network "+networkID, call.Execute)
}

// UnassignBlock unassigns a block from a public network. It never uses the API's "force", which would disconnect a
// member that has an address of the block.
func (c *Client) UnassignBlock(ctx context.Context, networkID, blockID string) error {
	ctx = withOperation(ctx, "unassign IP block")
	call := c.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksIpBlockIdDelete(ctx, networkID, blockID)
	return send(ctx, c, blockID+" from public network "+networkID, call.Execute)
}

func decodeNetwork(o object) plan.Network {
	network := plan.Network{
		ID:       o.text("id"),
		Name:     o.text("name"),
		Location: o.text("location"),
		VLAN:     o.number("vlanId"),
		Status:   plan.NetworkStatus(o.text("status")),
	}
	for _, block := range o.list("ipBlocks") {
		cidr, _ := netip.ParsePrefix(block.text("cidr")) // the zero Prefix with an error
		network.Blocks = append(network.Blocks, plan.NetworkBlock{ID: block.text("id"), CIDR: cidr})
	}
	for _, member := range o.list("memberships") {
		if kind := member.text("resourceType"); kind != "" && foldResourceType(kind) != "server" {
			continue
		}
		network.Members = append(network.Members, plan.Member{ServerID: member.text("resourceId"),
			IPs: member.addresses("ips")})
	}
	return network
}
