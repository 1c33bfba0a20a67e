package pnapsim

import (
	"fmt"
	"net/netip"
	"time"
)

// Config defines how a simulation behaves. Its zero value works: manual clock, the assumed latencies, no
// validation against OpenAPI documents.
type Config struct {
	// Clock is the model time; nil means one that stands still.
	Clock *Clock
	// Specs are the OpenAPI documents that every exchange is checked against; nil checks nothing.
	Specs *Specs
	// Latency of what happens after an answer; the zero value means DefaultLatency.
	Latency *Latency
	// Switches choose an answer where the real service's is not known; the zero value means the defaults.
	Switches Switches
	// TokenLifetime in the clients' time; 0 means the real service's 15 minutes.
	TokenLifetime time.Duration
	// ServerStock is how many servers can be had at each location; 0 means 100.
	ServerStock int
	// RandomSeed makes IDs and tokens; the same seed gives the same ones.
	RandomSeed uint64
	// OnEntry is called with every request when it has been answered; it must be quick.
	OnEntry func(Entry)
}

// Latency is how long things take, in model time. The defaults are assumptions from what others observed.
type Latency struct {
	// Response of every API request. With a manual clock leave it 0, or requests wait for Advance.
	Response Duration `json:"response"`
	// BlockCreate from creating to unassigned.
	BlockCreate Duration `json:"blockCreate"`
	// Assign from assigning to assigned.
	Assign Duration `json:"assign"`
	// Unassign from unassigning to unassigned.
	Unassign Duration `json:"unassign"`
	// Membership of a server in a network, to come and to go.
	Membership Duration `json:"membership"`
	// MembershipView is how much later the network's list follows the servers.
	MembershipView Duration `json:"membershipView"`
	// NetworkChange of a network itself (created, router advertisements).
	NetworkChange Duration `json:"networkChange"`
	// PeerGroup of BGP, to come, to change and to go.
	PeerGroup Duration `json:"peerGroup"`
	// ServerCreate from creating to powered-on.
	ServerCreate Duration `json:"serverCreate"`
	// ServerAction such as reboot and deprovision.
	ServerAction Duration `json:"serverAction"`
	// TagPropagation is how long a fresh tag is refused in assignments.
	TagPropagation Duration `json:"tagPropagation"`
	// ListLag is how long the list of blocks omits a new block and keeps a deleted one.
	ListLag Duration `json:"listLag"`
	// ServerListLag and NetworkListLag are by how much the lists of servers and networks are older than what their IDs
	// answer, at least.
	ServerListLag  Duration `json:"serverListLag"`
	NetworkListLag Duration `json:"networkListLag"`
	// Quarantine of a freed CIDR before it may be sold again.
	Quarantine Duration `json:"quarantine"`
}

// DefaultLatency is what is assumed of the real service, without response time and list lag.
func DefaultLatency() Latency {
	seconds := func(n int) Duration { return Duration(time.Duration(n) * time.Second) }
	return Latency{
		BlockCreate:    seconds(1),
		Assign:         seconds(30),
		Unassign:       seconds(30),
		Membership:     seconds(45),
		MembershipView: seconds(2),
		NetworkChange:  seconds(10),
		PeerGroup:      seconds(120),
		ServerCreate:   seconds(300),
		ServerAction:   seconds(60),
		TagPropagation: seconds(5),
		Quarantine:     seconds(60),
	}
}

// Duration is a time.Duration that JSON writes as text, such as "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: want a form like 1m30s: %w", text, err)
	}
	if parsed < 0 {
		return fmt.Errorf("duration %q: must not be negative", text)
	}
	*d = Duration(parsed)
	return nil
}

// locations are the sites of the API (Locations API, schema ProductLocationEnum).
func locations() []string { return []string{"PHX", "ASH", "NLD", "SGP", "CHI", "SEA"} }

var locationNames = map[string]string{
	"PHX": "Phoenix, USA", "ASH": "Ashburn, USA", "NLD": "Amsterdam, NLD", "SGP": "Singapore",
	"CHI": "Chicago, USA", "SEA": "Seattle, USA",
}

func knownLocation(name string) bool { return locationNames[name] != "" }

// defaultPools gives every location a /22 of 198.18.0.0/15 (RFC 2544, benchmarking) and a /48 of
// 2001:db8::/32 (RFC 3849, documentation); ASH sells from 203.0.113.0/24 (RFC 5737) first.
func defaultPools() map[string][]netip.Prefix {
	pools := map[string][]netip.Prefix{}
	for i, location := range locations() {
		v4 := netip.AddrFrom4([4]byte{198, 18, byte(4 * i), 0})
		v6 := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(i + 1)})
		pools[location] = []netip.Prefix{netip.PrefixFrom(v4, 22), netip.PrefixFrom(v6, 48)}
	}
	ash := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, 0}), 24)
	pools["ASH"] = append([]netip.Prefix{ash}, pools["ASH"]...)
	return pools
}
