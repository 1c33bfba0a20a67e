package pnap

import (
	"context"
	"net/netip"

	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"
)

// ServerStatus is the state of a server (BMC API, property "status").
type ServerStatus string

// The states that the API documents. Any other value means none of these.
const (
	ServerCreating    ServerStatus = "creating"
	ServerPoweredOn   ServerStatus = "powered-on"
	ServerPoweredOff  ServerStatus = "powered-off"
	ServerRebooting   ServerStatus = "rebooting"
	ServerResetting   ServerStatus = "resetting"
	ServerDeleting    ServerStatus = "deleting"
	ServerReserved    ServerStatus = "reserved"
	ServerError       ServerStatus = "error"
	ServerReinstating ServerStatus = "reinstating"
)

// MembershipAssigned is the status of a membership whose switch ports are configured.
const MembershipAssigned = "assigned"

// Membership is a server's membership in a public network, from the server's resource.
type Membership struct {
	Network string       // the ID of the public network
	IPs     []netip.Addr // the addresses that the server uses there, ranges expanded
	Status  string       // the status in the API: "in-progress", then "assigned"
}

// Server is one server of the account. A property that the API omits is empty.
type Server struct {
	ID             string       // the API's ID of the server
	Hostname       string       // the name in the portal. It is not unique.
	Status         ServerStatus // the unchanged status in the API
	Type           string       // the product, such as "s2.c1.medium"
	Location       string       // the 3-letter code of the location
	OS             string       // the ordered operating system
	NetworkType    string       // PUBLIC_AND_PRIVATE, PRIVATE_ONLY, PUBLIC_ONLY, USER_DEFINED or NONE
	PrivateIPs     []netip.Addr // the addresses in private networks; there may be none
	PublicIPs      []netip.Addr // all usable addresses of the server's own block, and those in public networks
	PublicNetworks []Membership // the public networks that the server is a member of, or is joining
	GatewayAddress netip.Addr   // the gateway of the server's own block; invalid when there is none
}

// Servers lists the servers of the account. The API has no pagination: one request returns all.
func (c *Client) Servers(ctx context.Context) ([]Server, error) {
	ctx = withOperation(ctx, "list servers")
	return list(ctx, c, "", "id", decodeServer, c.servers.ServersAPI.ServersGet(ctx).Execute)
}

// Server returns the server with the given ID.
func (c *Client) Server(ctx context.Context, id string) (Server, error) {
	ctx = withOperation(ctx, "get server")
	return get(ctx, c, id, decodeServer, c.servers.ServersAPI.ServersServerIdGet(ctx, id).Execute)
}

// JoinNetwork makes a server a member of a public network with the given addresses, each in an assigned block of the
// network. force allows a member without addresses, and addresses that another member has. The API answers before the
// switch ports are configured: the status of the Membership shows when they are. It answers with a conflict while the
// network or the server is changing and when the server is already a member.
func (c *Client) JoinNetwork(ctx context.Context, serverID, networkID string, ips []netip.Addr, force bool) error {
	ctx = withOperation(ctx, "join server")
	texts := make([]string, len(ips)) // not nil, which the SDK would send as null
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	membership := bmcapi.NewServerPublicNetwork(networkID, texts)
	call := c.servers.ServersAPI.ServersServerIdPublicNetworksPost(ctx, serverID).ServerPublicNetwork(*membership)
	if force {
		call = call.Force(true)
	}
	return send(ctx, c, serverID+" to public network "+networkID, call.Execute)
}

// LeaveNetwork removes a server from a public network. Its VLAN closes at once, the membership some time later.
func (c *Client) LeaveNetwork(ctx context.Context, serverID, networkID string) error {
	ctx = withOperation(ctx, "take server")
	call := c.servers.ServersAPI.ServersServerIdPublicNetworksDelete(ctx, serverID, networkID)
	return send(ctx, c, serverID+" out of public network "+networkID, call.Execute)
}

func decodeServer(o object) Server {
	network := o.nested("networkConfiguration")
	gateway, _ := netip.ParseAddr(network.text("gatewayAddress")) // the zero Addr with an error
	server := Server{
		ID:             o.text("id"),
		Hostname:       o.text("hostname"),
		Status:         ServerStatus(o.text("status")),
		Type:           o.text("type"),
		Location:       o.text("location"),
		OS:             o.text("os"),
		NetworkType:    o.text("networkType"),
		PrivateIPs:     o.addresses("privateIpAddresses"),
		PublicIPs:      o.addresses("publicIpAddresses"),
		GatewayAddress: gateway,
	}
	for _, entry := range network.nested("publicNetworkConfiguration").list("publicNetworks") {
		server.PublicNetworks = append(server.PublicNetworks, Membership{
			Network: entry.text("id"),
			IPs:     entry.addresses("ips"),
			Status:  entry.text("statusDescription"),
		})
	}
	return server
}
