package pnapsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// timeForm is how the API writes times: RFC 3339 with milliseconds.
const timeForm = "2006-01-02T15:04:05.000Z"

// timestamp is a model time as the API writes it.
func (s *Sim) timestamp(t time.Time) string { return s.clock.Shown(t).UTC().Format(timeForm) }

// maxDescription is the longest description that the APIs store.
const maxDescription = 250

// blockBody is the body that buys a block.
type blockBody struct {
	Location    string           `json:"location"`
	Size        string           `json:"cidrBlockSize"`
	Version     string           `json:"ipVersion"`
	Description string           `json:"description"`
	Tags        []assignmentBody `json:"tags"`
}

// changeBody is the body that changes a block or a server.
type changeBody struct {
	Hostname    *string `json:"hostname"`
	Description *string `json:"description"`
}

// blockBits is the prefix length of a size on sale, or 0 (IP Addresses API, schema IpBlockCreate).
func blockBits(size, version string) (bits int, v6 bool) {
	switch version {
	case "", "V4":
		return map[string]int{"/31": 31, "/30": 30, "/29": 29, "/28": 28}[size], false
	case "V6":
		return map[string]int{"/64": 64}[size], true
	default:
		return 0, false
	}
}

func (s *Sim) listBlocks(c *call) reply {
	passes, faults := s.tagFilter(c)
	if faults != nil {
		return invalid(faults...)
	}
	lag := time.Duration(s.latency.ListLag)
	c.account.ghosts = slices.DeleteFunc(c.account.ghosts,
		func(b *block) bool { return !s.now.Before(b.deleted.Add(lag)) })
	return listing(slices.Concat(inOrder(c.account.blocks), c.account.ghosts),
		func(b *block) bool { return !s.now.Before(b.created.Add(lag)) && passes(b.tags) },
		func(b *block) object { return s.blockView(c.account, b) })
}

func (s *Sim) blockView(a *account, b *block) object {
	status := b.status
	if status == blockDeleted {
		status = blockUnassigned // a lagging list
	}
	view := object{
		"id": b.id, "location": b.location, "cidrBlockSize": fmt.Sprintf("/%d", b.cidr.Bits()), "cidr": b.cidr.String(),
		"ipVersion": b.version(), "status": status, "tags": assignmentsView(a, b.tags), "isBringYourOwn": b.byo,
		"isSystemManaged": b.system, "createdOn": s.timestamp(b.created),
	}
	optional(view, "description", b.description)
	optional(view, "parentIpBlockAllocationId", b.parent)
	hidden := s.switches.AssignedIDFrom == blockAssigned && b.status == blockAssigning
	if b.resource != "" && !hidden {
		view["assignedResourceId"] = b.resource
		view["assignedResourceType"] = "server"
		if b.resourceKind == ofNetwork {
			view["assignedResourceType"] = s.switches.AssignedType
		}
	}
	return view
}

func (s *Sim) createBlock(c *call, a *account, body blockBody) reply {
	bits, v6 := blockBits(body.Size, body.Version)
	tags, faults := s.resolveTags(a, body.Tags)
	if bits == 0 {
		faults = append(faults, fmt.Sprintf("cidrBlockSize %q: want /31, /30, /29 or /28 for V4, /64 for V6",
			body.Size))
	}
	if !knownLocation(body.Location) {
		faults = append(faults, fmt.Sprintf("location %q: want one of %s", body.Location,
			strings.Join(locations(), ", ")))
	}
	if len(body.Description) > maxDescription {
		faults = append(faults, fmt.Sprintf("description: at most %d characters", maxDescription))
	}
	if faults != nil {
		return invalid(faults...)
	}
	if a.wholeBlocks() >= a.maxBlocks {
		return s.overQuota(quotaBlocks)
	}
	cidr, ok := s.pool.buy(body.Location, bits, v6, s.now, time.Duration(s.latency.Quarantine))
	if !ok {
		return refuse(http.StatusNotAcceptable, fmt.Sprintf("No IP blocks of size %s are available in location %s.",
			body.Size, body.Location))
	}
	b := &block{
		made: s.make(s.newID()), owner: c.client.ID, location: body.Location, cidr: cidr, status: blockCreating,
		description: body.Description, tags: tags, created: s.now,
	}
	s.judgePurchase(c, b)
	a.blocks[b.id] = b
	a.money.bought(b, s.now)
	if s.switches.CreateStatus == blockUnassigned {
		s.moveBlock(b, blockUnassigned)
	} else {
		s.after(s.latency.BlockCreate, func() {
			if b.status == blockCreating {
				s.moveBlock(b, blockUnassigned)
			}
		})
	}
	return reply{status: http.StatusCreated, body: s.blockView(a, b)}
}

func (s *Sim) patchBlock(c *call, a *account, body changeBody) reply {
	b := a.blocks[c.params["ipBlockId"]]
	if b == nil {
		return refuse(http.StatusNotFound, "The request failed since the resource could not been found.")
	}
	if body.Description != nil {
		if len(*body.Description) > maxDescription {
			return invalid(fmt.Sprintf("description: at most %d characters", maxDescription))
		}
		b.description = *body.Description
	}
	s.judgeBlockUse(c, b, GrantTags)
	return reply{status: http.StatusOK, body: s.blockView(c.account, b)}
}

func (s *Sim) putBlockTags(c *call, b *block, bodies []assignmentBody) reply {
	s.judgeBlockUse(c, b, GrantTags)
	tags, faults := s.resolveTags(c.account, bodies)
	if faults != nil {
		return invalid(faults...)
	}
	b.tags = tags
	return reply{status: http.StatusOK, body: s.blockView(c.account, b)}
}

func (s *Sim) deleteBlock(c *call, b *block) reply {
	s.judgeBlockUse(c, b, GrantDelete)
	if !s.deletable(b) {
		return refuse(s.switches.DeleteWrongState,
			fmt.Sprintf("The IP block %s cannot be deleted while it is %s.", b.id, b.status))
	}
	s.removeBlock(c.account, b)
	return reply{status: http.StatusOK, body: object{"result": "IP Block has been deleted.", "ipBlockId": b.id}}
}

func (s *Sim) deletable(b *block) bool {
	failed := b.status == blockErrorAssigning || b.status == blockErrorUnassigning
	return b.status == blockUnassigned || failed && b.resource == "" && s.switches.DeleteErrorState == "allow"
}

func (s *Sim) removeBlock(a *account, b *block) {
	s.moveBlock(b, blockDeleted)
	b.deleted = s.now
	b.resource = ""
	b.resourceKind = ""
	delete(a.blocks, b.id)
	a.ghosts = append(a.ghosts, b)
	if b.parent != "" {
		a.join(b.parent)
		return
	}
	a.money.ended(b, s.now)
	s.pool.giveBack(b.cidr, s.now)
}

// nextBlockStates are the legal moves of a block.
var nextBlockStates = map[string][]string{
	blockCreating:         {blockUnassigned},
	blockUnassigned:       {blockAssigning, blockDeleted},
	blockAssigning:        {blockAssigned, blockErrorAssigning},
	blockAssigned:         {blockUnassigning},
	blockErrorAssigning:   {blockUnassigning, blockDeleted},
	blockUnassigning:      {blockUnassigned, blockErrorUnassigning},
	blockErrorUnassigning: {blockUnassigning, blockDeleted},
}

// moveBlock changes a block's state; a move that the state machine does not have is the simulator's own
// fault and is not made. A block that is gone stays so.
func (s *Sim) moveBlock(b *block, to string) {
	if b.status == blockDeleted {
		return
	}
	if !slices.Contains(nextBlockStates[b.status], to) {
		s.violate(nil, "simulator", "block %s: no move from %q to %q", b.id, b.status, to)
		return
	}
	b.status = to
}
