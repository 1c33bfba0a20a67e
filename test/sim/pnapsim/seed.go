package pnapsim

// Seed is what there is from the start. As a JSON file:
//
//	{
//	  "accounts": [{
//	    "id": "demo",
//	    "clients":  [{"id": "ccm", "secret": "s3cret-of-the-ccm", "judged": true}],
//	    "tags":     [{"name": "team", "isBillingTag": false}],
//	    "networks": [{"id": "60473c2509268bc77fd06d29", "name": "public", "location": "ASH", "vlan": 20}],
//	    "blocks":   [{"name": "nodes", "location": "ASH", "cidr": "203.0.113.0/28", "network": "public"}],
//	    "servers":  [{"hostname": "node-1", "location": "ASH", "networkType": "PRIVATE_ONLY",
//	                  "privateIPs": ["10.0.0.11"],
//	                  "networks": [{"network": "public", "ips": ["203.0.113.2"]}]}]
//	  }]
//	}
//
// IDs are made where they are missing. Networks are named by name or ID. What is seeded belongs to the
// portal's user, not to a client, except where "owner" names a client.
type Seed struct {
	// Accounts own everything.
	Accounts []AccountSeed `json:"accounts"`
}

// AccountSeed is one account.
type AccountSeed struct {
	// ID of the account, the simulator's name for it.
	ID string `json:"id"`
	// MaxServers and MaxBlocks are quotas; 0 means 100.
	MaxServers int `json:"maxServers,omitempty"`
	MaxBlocks  int `json:"maxBlocks,omitempty"`
	// Clients are its API clients.
	Clients []ClientSeed `json:"clients,omitempty"`
	// Tags, Networks, Blocks and Servers are its resources.
	Tags     []TagSeed     `json:"tags,omitempty"`
	Networks []NetworkSeed `json:"networks,omitempty"`
	Blocks   []BlockSeed   `json:"blocks,omitempty"`
	Servers  []ServerSeed  `json:"servers,omitempty"`
}

// ClientSeed is an API client with its credentials.
type ClientSeed struct {
	// ID and Secret are its OAuth 2.0 client credentials.
	ID     string `json:"id"`
	Secret string `json:"secret"`
	// Scopes that it may be granted; none means all: bmc, bmc.read, tags, tags.read.
	Scopes []string `json:"scopes,omitempty"`
	// Judged clients are held to the rules; the others only to the OpenAPI documents.
	Judged bool `json:"judged,omitempty"`
	// AllowForce are the uses of force=true that it declares: join, membership, unassign.
	AllowForce []string `json:"allowForce,omitempty"`
	// OwnershipTags prove a block to be this client's when it has all of them.
	OwnershipTags map[string]string `json:"ownershipTags,omitempty"`
	// MaxPurchases is the most blocks that it declares to buy; absent means any number.
	MaxPurchases *int `json:"maxPurchases,omitempty"`
	// RequestsPerMinute is the most requests to one operation that it declares; 0 means any number.
	RequestsPerMinute float64 `json:"requestsPerMinute,omitempty"`
}

// TagSeed is a tag of the account.
type TagSeed struct {
	// Name of the tag.
	Name string `json:"name"`
	// Billing tags appear on invoices.
	Billing bool `json:"isBillingTag,omitempty"`
}

// NetworkSeed is a public network.
type NetworkSeed struct {
	// ID is 24 hexadecimal digits; made when empty.
	ID string `json:"id,omitempty"`
	// Owner is a client's ID, or empty for the portal's user.
	Owner string `json:"owner,omitempty"`
	// Name is unique in the account.
	Name string `json:"name"`
	// Location such as ASH.
	Location string `json:"location"`
	// VLAN ID, 2 to 4094; 0 means the lowest that is free.
	VLAN int `json:"vlan,omitempty"`
}

// BlockSeed is an IP block.
type BlockSeed struct {
	// ID is 24 hexadecimal digits; made when empty.
	ID string `json:"id,omitempty"`
	// Owner is a client's ID, or empty for the portal's user.
	Owner string `json:"owner,omitempty"`
	// Grants are what a client may do with it although it is not its own: assign, unassign, tags, delete.
	Grants []string `json:"grants,omitempty"`
	// Name is the description.
	Name string `json:"name,omitempty"`
	// Location such as ASH.
	Location string `json:"location"`
	// CIDR of the block.
	CIDR string `json:"cidr"`
	// Network that it is assigned to, by name or ID; empty means none.
	Network string `json:"network,omitempty"`
	// Tags by name; tags that the account lacks are made.
	Tags map[string]string `json:"tags,omitempty"`
	// BringYourOwn blocks belong to the account's owner outright.
	BringYourOwn bool `json:"isBringYourOwn,omitempty"`
}

// ServerSeed is a server.
type ServerSeed struct {
	// ID is 24 hexadecimal digits; made when empty.
	ID string `json:"id,omitempty"`
	// Owner is a client's ID, or empty for the portal's user.
	Owner string `json:"owner,omitempty"`
	// Hostname of the server.
	Hostname string `json:"hostname"`
	// Location such as ASH.
	Location string `json:"location"`
	// Type such as s1.c1.small, which is the default.
	Type string `json:"type,omitempty"`
	// Status; empty means powered-on.
	Status string `json:"status,omitempty"`
	// NetworkType; empty means PUBLIC_AND_PRIVATE.
	NetworkType string `json:"networkType,omitempty"`
	// PrivateIPs and PublicIPs are its own addresses.
	PrivateIPs []string `json:"privateIPs,omitempty"`
	PublicIPs  []string `json:"publicIPs,omitempty"`
	// Gateway is the address of its default gateway.
	Gateway string `json:"gateway,omitempty"`
	// ReservationID makes it reserved, not gone, when it is deprovisioned.
	ReservationID string `json:"reservationID,omitempty"`
	// Tags by name; tags that the account lacks are made.
	Tags map[string]string `json:"tags,omitempty"`
	// Networks that it is a member of.
	Networks []MembershipSeed `json:"networks,omitempty"`
}

// MembershipSeed is a server's membership in a network.
type MembershipSeed struct {
	// Network by name or ID.
	Network string `json:"network"`
	// Owner is a client's ID, or empty for the portal's user.
	Owner string `json:"owner,omitempty"`
	// IPs of the server in it, single addresses and ranges.
	IPs []string `json:"ips,omitempty"`
}
