// Package wire is what the lab's daemon and its callers say to each other: the arguments and answers of its
// remote procedures. Times are by the daemon's clock, which in a virtual machine is not the caller's.
package wire

import (
	"fmt"
	"net/netip"
	"time"
)

// Service is the name under which the daemon's methods are registered with net/rpc.
const Service = "Lab"

// Names of the hosts that every lab has besides its servers. A server's pods live in <server>-pod.
const (
	Switch     = "switch"
	Gateway    = "gateway"
	Client     = "client"
	Management = "management"
	PodSuffix  = "-pod"
)

// SwitchOf and GatewayOf are the switch and the gateway of a location by its number, from 0 in the order in which the
// servers name them: the first ones are Switch and Gateway, then switch-2 and so on.
func SwitchOf(number int) string { return ofLocation(Switch, number) }

// GatewayOf is described at SwitchOf.
func GatewayOf(number int) string { return ofLocation(Gateway, number) }

func ofLocation(name string, number int) string {
	if number == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, number+1)
}

// PrivateVLAN is the VLAN ID of the private network.
const PrivateVLAN = 4

var (
	// ManagementAddress is the address on the private network at which the caller's services are reached.
	ManagementAddress = netip.MustParsePrefix("10.0.0.1/24")
	// ClientNet is the network of the client beyond the gateway (RFC 5737): the gateway is .1, the client .10.
	ClientNet = netip.MustParsePrefix("198.51.100.0/24")
	// GatewayAddress is the gateway's there.
	GatewayAddress = ClientNet.Addr().Next()
)

// Directory is where the files that the caller hands over appear, on every host.
const Directory = "/lab"

// TokenVariable is the environment variable by which the daemon learns the word that it must say first on its
// connection, so that the caller knows it.
const TokenVariable = "PNAP_LAB_TOKEN"

// Server is a bare-metal server.
type Server struct {
	// Name is the host name, at most 13 characters.
	Name string
	// ID is the server's ID in the phoenixNAP API, by which the data plane names it.
	ID string
	// Location is where it is; the data plane has the same code for a network. Each location has a switch and a
	// gateway. In a lab of one location, all networks are there, whatever their code.
	Location string
	// Private is its address on the private network, such as 10.0.0.11/24.
	Private netip.Prefix
	// Pods is the subnet of its pods; the pod namespace has the address .10 in it, the server .1.
	Pods netip.Prefix
	// Router is the next hop of its default route, on the private network; the zero value means no default route there.
	Router netip.Addr
	// Bridge is the name of a bridge over the bond, such as vmbr0, that the VLAN interfaces are on; empty for none.
	Bridge string
	// Storage is an address on a second bond, bond1, whose network has the ID of each VLAN that is configured; the zero
	// value means that there is none.
	Storage netip.Prefix
}

// Setup describes the lab to build: what the daemon has to know of lab.Config.
type Setup struct {
	Servers   []Server
	HostPorts []uint16
	FeedURL   string
	// ClientPrivate is Config.ClientPrivate, NetworkPlugin Config.NetworkPlugin.
	ClientPrivate netip.Prefix
	NetworkPlugin bool
	// Host is the caller's loopback address as the daemon reaches it; it replaces the host of FeedURL.
	Host string
}

// Topology is what was built.
type Topology struct {
	// Uplink defines what bond0 of a server is: "bonding" (a real bond with eth0 as its slave) or "veth" (the uplink
	// itself, where the kernel has no bonding).
	Uplink string
	// Built is how long that took.
	Built time.Duration
}

// VLAN is the user's own configuration of a server: an 802.1Q interface bond0.<ID>.
type VLAN struct {
	// Server names the server, ID the VLAN.
	Server string
	ID     int
	// Address is the interface's address.
	Address netip.Prefix
	// Gateway is the next hop of the default route; the zero value means no default route.
	Gateway netip.Addr
}

// Fault is a way in which a server's VLAN interface breaks.
type Fault string

// The faults that Break knows.
const (
	// LinkDown sets the VLAN interface down.
	LinkDown Fault = "link-down"
	// LinkDeleted deletes it.
	LinkDeleted Fault = "link-deleted"
	// WrongVLAN replaces it by one of the same name and address with another VLAN ID.
	WrongVLAN Fault = "wrong-vlan"
)

// Break asks for a fault.
type Break struct {
	Server string
	Fault  Fault
	// VLAN is the ID of the one whose interface breaks; 0 for all of the server.
	VLAN int
}

// Program is a program to run on a host.
type Program struct {
	// Host is where it runs.
	Host string
	// Name names a long-lived program and its log.
	Name string
	// Args are the program, as a path or a name to look up, and its arguments.
	Args []string
	// Env is added to PATH, HOME, TMPDIR and HOSTNAME.
	Env []string
	// Stdin is the whole of its standard input (Exec only).
	Stdin []byte
	// Timeout ends it (Exec only); 0 means a minute.
	Timeout time.Duration
	// Call identifies a running Exec, so that it can be cancelled.
	Call uint64
}

// Output is how a program ended.
type Output struct {
	Stdout, Stderr []byte
	// Code is the exit code; 128 plus the number of the signal that ended it.
	Code int
}

// Process is a long-lived program.
type Process struct {
	ID   int
	Name string
	Host string
	Args []string
	PID  int
	// Exited reports that it has ended, Code how (as in Output).
	Exited bool
	Code   int
}

// Signal asks to send a signal, by number, to a process that StartProcess started.
type Signal struct {
	ID     int
	Number int
}

// Await asks to wait until a process has ended, at most for a time.
type Await struct {
	ID      int
	Timeout time.Duration
}

// File is a file of the lab.
type File struct {
	// Path is absolute; Host says on which host it is seen (its /run and /sys are its own). Empty means none.
	Host, Path string
	Data       []byte
	// Mode are the permission bits of a file to be written.
	Mode uint32
}

// Probe asks for requests from the client, a new connection each.
type Probe struct {
	// URL is what is asked: "http://address:port/path", or "udp://address:port" for one datagram and its answer.
	URL string
	// From is the client's own address of the requests; the zero value leaves it to the kernel.
	From netip.Addr
	// Interval is the time from the start of one attempt to the start of the next; attempts may overlap.
	Interval time.Duration
	// Timeout ends an attempt.
	Timeout time.Duration
}

// Attempt is one request of a Probe.
type Attempt struct {
	// At is when it began, Took how long it lasted.
	At   time.Time
	Took time.Duration
	// OK reports that an answer came, with status 200 where it is HTTP; Body is its beginning.
	OK    bool
	Body  string
	Error string
}

// Claim is an ARP packet, seen by a gateway, whose sender claims an address (RFC 826).
type Claim struct {
	At time.Time
	// Gateway is the host that saw it, on a VLAN.
	Gateway string
	VLAN    int
	IP      netip.Addr
	MAC     string
	// Reply reports that it was a reply, else a request.
	Reply bool
	// Gratuitous reports that sender and target address are the same: an announcement (RFC 5227, section 3).
	Gratuitous bool
}

// Neighbour is an entry of a host's ARP table.
type Neighbour struct {
	Interface string
	IP        netip.Addr
	MAC       string
}

// Connection asks for a TCP connection from a host, which the daemon hands over by calling back.
type Connection struct {
	// Host is where it begins, Address (host:port) where it leads.
	Host, Address string
	// CallBack is where the caller listens, and Token the first line that it expects there.
	CallBack, Token string
}

// Nothing stands where a procedure needs no argument or gives no answer.
type Nothing bool

// Outage is a stretch of time without an answer.
type Outage struct {
	// From is when the last attempt that was answered before began, To when the first that was answered after did;
	// zero when there was none.
	From, To time.Time
	// Failed counts the attempts in between.
	Failed int
}

// Duration is the length of the outage; 0 while it has no beginning or no end.
func (o Outage) Duration() time.Duration {
	if o.From.IsZero() || o.To.IsZero() {
		return 0
	}
	return o.To.Sub(o.From)
}

// Outages finds the stretches of failed attempts among attempts in the order of their beginning. What failed before
// the first answer counts too, with From zero.
func Outages(attempts []Attempt) []Outage {
	var all []Outage
	var last time.Time
	failed := 0
	for _, a := range attempts {
		if !a.OK {
			failed++
			continue
		}
		if failed > 0 {
			all = append(all, Outage{From: last, To: a.At, Failed: failed})
		}
		last = a.At
		failed = 0
	}
	if failed > 0 {
		all = append(all, Outage{From: last, Failed: failed})
	}
	return all
}
