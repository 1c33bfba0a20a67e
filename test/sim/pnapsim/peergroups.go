package pnapsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// States of a BGP peer group (Networks API, property "status"). Nothing says what puts one ON_HOLD.
const (
	groupPending         = "PENDING"
	groupBusy            = "BUSY"
	groupReady           = "READY"
	groupError           = "ERROR"
	groupPendingDeletion = "PENDING_DELETION"
	groupDeleting        = "DELETING"
)

// Verification of an autonomous system number (Networks API, schema AsnDetails).
const (
	asnVerified = "VERIFIED"
	asnPending  = "PENDING_VERIFICATION"
	asnFailed   = "FAILED_VERIFICATION"
)

const (
	// phoenixNAPASN is the number that an account has without one of its own.
	phoenixNAPASN = 65401
	// maxASN is the highest number (RFC 6793).
	maxASN = 1<<32 - 1
)

// peerGroup is what the servers of an account need to announce its blocks to the routers of a location.
type peerGroup struct {
	made
	owner    string
	location string
	status   string
	password string
	routes   string
	target   asnDetails
	active   *asnDetails // nil until the first is verified
	created  time.Time   // zero until then
	updated  time.Time
}

type asnDetails struct {
	number int64
	status string
}

// own reports whether the number is the account's and not phoenixNAP's.
func (d asnDetails) own() bool { return d.number != phoenixNAPASN }

func (d asnDetails) view() object {
	return object{"asn": d.number, "isBringYourOwn": d.own(), "verificationStatus": d.status}
}

// peerGroupBody is the body that makes or changes a peer group.
type peerGroupBody struct {
	Location string  `json:"location"`
	ASN      *int64  `json:"asn"`
	Password *string `json:"password"`
	Routes   *string `json:"advertisedRoutes"`
}

func (s *Sim) listPeerGroups(c *call) reply {
	location := c.query.Get("location")
	return listing(inOrder(c.account.peerGroups),
		func(g *peerGroup) bool { return location == "" || location == g.location },
		func(g *peerGroup) object { return s.peerGroupView(c.account, g) })
}

func (s *Sim) peerGroupView(a *account, g *peerGroup) object {
	prefixes := []any{}
	v4 := []any{}
	for _, b := range inOrder(a.blocks) {
		if b.location != g.location || b.parent != "" {
			continue // a part is announced within its parent, "from the exact size down to /32"
		}
		prefixes = append(prefixes, g.prefixView(b))
		if !b.isV6() {
			v4 = append(v4, g.prefixV4View(b))
		}
	}
	loopbacks := loopbacksOf(g.location)
	view := object{
		"id": g.id, "status": g.status, "location": g.location, "ipPrefixes": prefixes, "ipv4Prefixes": v4,
		"targetAsnDetails": g.target.view(), "password": g.password, "advertisedRoutes": g.routes,
		"rpkiRoaOriginAsn": originASN(g.location), "eBgpMultiHop": 7, "peeringLoopbacksV4": loopbacks,
		"peeringLoopbacksV6":    []string{"fd00:0:0:1005::1", "fd00:0:0:1005::2"},
		"keepAliveTimerSeconds": 10, "holdTimerSeconds": 30, "lastUpdatedOn": s.timestamp(g.updated),
	}
	if g.active != nil {
		view["activeAsnDetails"] = g.active.view()
		view["createdOn"] = s.timestamp(g.created)
	}
	return view
}

// prefixStatus is the status of a block as a prefix of the group.
func (g *peerGroup) prefixStatus(b *block) string {
	switch {
	case g.status == groupDeleting:
		return groupDeleting
	case b.status == blockCreating:
		return groupPending
	default:
		return groupReady
	}
}

func (g *peerGroup) prefixView(b *block) object {
	return object{
		"ipAllocationId": b.id, "cidr": b.cidr.String(), "ipVersion": b.version(), "status": g.prefixStatus(b),
	}
}

// prefixV4View is a prefix in the older, deprecated list. Any block may be announced, whether assigned or not; in use
// is one that is assigned.
func (g *peerGroup) prefixV4View(b *block) object {
	return object{
		"ipv4AllocationId": b.id, "cidr": b.cidr.String(), "status": g.prefixStatus(b), "isBringYourOwnIp": b.byo,
		"inUse": b.resource != "",
	}
}

// loopbacksOf are the addresses of the two routers of a location. They are not everywhere the same (Networks API,
// example of GET /bgp-peer-groups), so that clients have to take them from the answer.
func loopbacksOf(location string) []string {
	if location == "PHX" {
		return []string{"170.254.247.0", "170.254.247.1"}
	}
	return []string{"169.254.247.0", "169.254.247.1"}
}

// originASN is phoenixNAP's number in route origin authorizations. The document names those of PHX and ASH.
func originASN(location string) int {
	if location == "PHX" {
		return 20454
	}
	return 19437
}

// faults lists what is wrong in a request.
func (b peerGroupBody) faults() []string {
	var faults []string
	if b.Routes != nil && *b.Routes != "DEFAULT" && *b.Routes != "NONE" {
		faults = append(faults, fmt.Sprintf("advertisedRoutes %q: want DEFAULT or NONE", *b.Routes))
	}
	if b.ASN != nil && (*b.ASN < 1 || *b.ASN > maxASN) {
		faults = append(faults, fmt.Sprintf("asn %d: want 1 to %d", *b.ASN, int64(maxASN)))
	}
	return faults
}

func (s *Sim) createPeerGroup(c *call, a *account, body peerGroupBody) reply {
	faults := body.faults()
	if !knownLocation(body.Location) {
		faults = append(faults, fmt.Sprintf("location %q: want one of %s", body.Location,
			strings.Join(locations(), ", ")))
	}
	if faults != nil {
		return invalid(faults...)
	}
	if slices.ContainsFunc(inOrder(a.peerGroups), func(g *peerGroup) bool { return g.location == body.Location }) {
		return conflict("A BGP peer group in location " + body.Location + " exists.")
	}
	g := &peerGroup{made: s.make(s.newID()), owner: c.client.ID, location: body.Location, routes: "NONE",
		password: s.randomHex(8)}
	g.aim(phoenixNAPASN)
	a.peerGroups[g.id] = g
	return s.startPeerGroup(c, g, body)
}

func (s *Sim) patchPeerGroup(c *call, g *peerGroup, body peerGroupBody) reply {
	s.judgeUse(c, "BGP peer group "+g.id, g.owner)
	if faults := body.faults(); faults != nil {
		return invalid(faults...)
	}
	if !g.settled() {
		return conflict("The BGP peer group is " + g.status + ".")
	}
	return s.startPeerGroup(c, g, body)
}

// settled reports whether no change of the group is under way.
func (g *peerGroup) settled() bool { return g.status == groupReady || g.status == groupError }

// aim makes a number the one that the group will have; one of the account's own has to be verified first.
func (g *peerGroup) aim(number int64) {
	if g.active != nil && g.active.number == number {
		g.target = *g.active
		return
	}
	g.target = asnDetails{number, asnVerified}
	if g.target.own() {
		g.target.status = asnPending
	}
}

// startPeerGroup takes over what a request says and lets the routers follow.
func (s *Sim) startPeerGroup(c *call, g *peerGroup, body peerGroupBody) reply {
	if body.ASN != nil {
		g.aim(*body.ASN)
	}
	if body.Password != nil {
		g.password = *body.Password
	}
	if body.Routes != nil {
		g.routes = *body.Routes
	}
	outcome := c.outcome.Outcome
	s.movePeerGroup(c, g, groupPending, groupBusy, func() { s.settlePeerGroup(g, outcome) })
	return reply{status: http.StatusAccepted, body: s.peerGroupView(c.account, g)}
}

// movePeerGroup takes a group through two states to an end.
func (s *Sim) movePeerGroup(c *call, g *peerGroup, first, second string, end func()) {
	g.status = first
	g.updated = s.now
	whole := time.Duration(s.latency.PeerGroup + c.outcome.Delay)
	s.schedule(s.now.Add(whole/2), func() { g.status = second })
	s.schedule(s.now.Add(whole), end)
}

// settlePeerGroup ends a change, or lets it fail: the servers keep the number that they had.
func (s *Sim) settlePeerGroup(g *peerGroup, outcome string) {
	g.updated = s.now
	if outcome == OutcomeError {
		g.status = groupError
		if g.target.own() {
			g.target.status = asnFailed
		}
		return
	}
	g.status = groupReady
	g.target.status = asnVerified
	verified := g.target
	g.active = &verified
	if g.created.IsZero() {
		g.created = s.now
	}
}

func (s *Sim) deletePeerGroup(c *call, g *peerGroup) reply {
	s.judgeUse(c, "BGP peer group "+g.id, g.owner)
	if !g.settled() {
		return conflict("The BGP peer group is " + g.status + ".")
	}
	a := c.account
	s.movePeerGroup(c, g, groupPendingDeletion, groupDeleting, func() { delete(a.peerGroups, g.id) })
	return reply{status: http.StatusAccepted, body: s.peerGroupView(a, g)}
}
