package pnap

import (
	"context"
	"net/netip"

	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// Network returns the public network with the given ID, with its blocks and members.
func (c *Client) Network(ctx context.Context, id string) (plan.Network, error) {
	const op = "get public network"
	ctx = asking(ctx, op)
	body, err := request(ctx, c, op, id, c.networks.PublicNetworksAPI.PublicNetworksNetworkIdGet(ctx, id).Execute)
	if err != nil {
		return plan.Network{}, err
	}
	element, err := decodeObject(op, id, body)
	if err != nil {
		return plan.Network{}, err
	}
	return decodeNetwork(element), nil
}

// AssignBlock assigns an unassigned block to a public network. The API answers before it is done: the block's status
// shows the progress.
func (c *Client) AssignBlock(ctx context.Context, networkID, blockID string) error {
	const op = "assign IP block"
	ctx = asking(ctx, op)
	call := c.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksPost(ctx, networkID).
		PublicNetworkIpBlockCreate(*networkapi.NewPublicNetworkIpBlockCreate(blockID))
	_, err := request(ctx, c, op, blockID+" to public network "+networkID, call.Execute)
	return err
}

// UnassignBlock unassigns a block from a public network. It never uses the API's "force", which would disconnect a
// member that has an address of the block.
func (c *Client) UnassignBlock(ctx context.Context, networkID, blockID string) error {
	const op = "unassign IP block"
	ctx = asking(ctx, op)
	call := c.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksIpBlockIdDelete(ctx, networkID, blockID)
	_, err := request(ctx, c, op, blockID+" from public network "+networkID, call.Execute)
	return err
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
		cidr, err := netip.ParsePrefix(block.text("cidr"))
		if err != nil {
			cidr = netip.Prefix{}
		}
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
