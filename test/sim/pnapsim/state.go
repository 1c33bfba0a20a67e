package pnapsim

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// States of a block (IP Addresses API, property "status").
const (
	blockCreating         = "creating"
	blockUnassigned       = "unassigned"
	blockAssigning        = "assigning"
	blockAssigned         = "assigned"
	blockUnassigning      = "unassigning"
	blockErrorAssigning   = "error assigning"
	blockErrorUnassigning = "error unassigning"
	blockSubnetted        = "subnetted" // divided into smaller blocks, its parts
	blockDeleted          = "deleted"   // of the model only: the API never shows it
)

// States of a network (Networks API, property "status").
const (
	networkBusy  = "BUSY"
	networkReady = "READY"
	networkError = "ERROR"
)

// States of a server (BMC API, property "status").
const (
	serverCreating    = "creating"
	serverPoweredOn   = "powered-on"
	serverPoweredOff  = "powered-off"
	serverRebooting   = "rebooting"
	serverResetting   = "resetting"
	serverDeleting    = "deleting"
	serverReserved    = "reserved"
	serverError       = "error"
	serverReinstating = "reinstating"
)

// Kinds of resources that a block can be assigned to.
const (
	ofNetwork = "network"
	ofServer  = "server"
)

// Words of a membership's statusDescription.
const (
	membershipInProgress = "in-progress"
	membershipAssigned   = "assigned"
)

// account owns everything that its clients see.
type account struct {
	id         string
	maxServers int
	maxBlocks  int
	servers    map[string]*server
	blocks     map[string]*block
	ghosts     []*block // deleted blocks that a lagging list may still show
	networks   map[string]*network
	private    map[string]*privateNetwork
	peerGroups map[string]*peerGroup
	tags       map[string]*tag // by ID
	money      money
	answers    map[string][]pastAnswer // of lists that lag, by request
}

// pastAnswer is what a list would have answered at a time.
type pastAnswer struct {
	at    time.Time
	reply reply
}

// made is what every object has: its number in the order in which all were made, and its ID.
type made struct {
	seq int
	id  string
}

func (m made) number() int { return m.seq }

type tag struct {
	made
	name        string
	description string
	billing     bool
	usableAt    time.Time
}

// assignment is a tag on a resource.
type assignment struct {
	tagID string
	value string
}

type block struct {
	made
	owner        string // ID of the client that bought it; empty for the portal's user
	grants       []string
	location     string
	cidr         netip.Prefix
	status       string
	resource     string
	resourceKind string
	description  string
	tags         []assignment
	byo          bool
	system       bool      // managed by phoenixNAP
	parent       string    // ID of the block that it is a part of
	edited       bool      // to a status of the portal's choice
	editedAt     time.Time // when the portal divided it or chose its status
	created      time.Time
	deleted      time.Time
}

type network struct {
	made
	owner       string
	name        string
	location    string
	description string
	vlan        int
	status      string
	ra          bool
	created     time.Time
	blocks      []string // IDs, from assigning to the end of unassigning
	view        []memberView
	changes     int // unfinished changes
	busyUntil   time.Time
	busyBy      string // the client whose change is unfinished
	edited      bool   // to a status of the portal's choice
}

// memberView is a membership as the network shows it, which may lag behind the server.
type memberView struct {
	server string
	ips    []string
}

type server struct {
	made
	owner          string
	hostname       string
	description    string
	os             string
	kind           string
	location       string
	status         string
	networkType    string
	reservation    string
	pricing        string
	supersedes     string // the server from which the reservation came
	supersededBy   string // the one to which it went
	privateIPs     []string
	publicIPs      []string // of its own allocation, beside its own block
	ownBlocks      []string
	gateway        string
	tags           []assignment
	members        []*membership
	privateMembers []*privateMembership
	ipxe           ipxeBody // its URL is empty unless one was given
	changing       string   // the client whose network change is unfinished
	created        time.Time
}

type membership struct {
	network string
	owner   string
	ips     []string // single addresses and ranges, as they were given
	status  string
	open    bool // the VLAN is open on the server's port
}

// isV6 reports whether a block is IPv6.
func (b *block) isV6() bool { return b.cidr.Addr().Is6() }

// version of IP, as the APIs write it.
func (b *block) version() string {
	if b.isV6() {
		return "V6"
	}
	return "V4"
}

// isFree reports whether a block is on no resource, and on no way to or from one.
func (b *block) isFree() bool {
	return b.status == blockCreating || b.status == blockUnassigned || b.status == blockSubnetted
}

func (srv *server) member(networkID string) *membership {
	for _, m := range srv.members {
		if m.network == networkID {
			return m
		}
	}
	return nil
}

func (n *network) has(blockID string) bool { return slices.Contains(n.blocks, blockID) }

// inOrder returns the values of a map in the order in which they were made.
func inOrder[T interface{ number() int }](values map[string]T) []T {
	return slices.SortedFunc(maps.Values(values), func(a, b T) int { return a.number() - b.number() })
}
