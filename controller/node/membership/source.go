package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// source is a block from which the servers that join in one pass get addresses, or why they get none of it.
type source struct {
	block  network.Block
	ledger ipblock.Ledger
	// step is to be taken before the block can be used; nil for none.
	step *ipblock.Step
	// reason and text are for the Nodes that wait; both are empty if waiting is enough.
	reason, text string
	usable       bool
}

// choose returns the source for a server: the first that has an address for it. A server that already holds an address
// gets that one.
func choose(sources []source, server ipblock.Holder, ask ipblock.Ask) *source {
	best := 0
	for i := range sources {
		if sources[i].rank(server, ask) < sources[best].rank(server, ask) {
			best = i
		}
	}
	return &sources[best]
}

// rank orders the sources for a server, the best first. What is wrong with a block is reported rather than that another
// one is full, because it is what a person did last.
func (s source) rank(server ipblock.Holder, ask ipblock.Ask) int {
	_, holds := s.ledger.AddressOf(server)
	_, _, err := s.ledger.Expire(nil, ask.Now).Take(server, ask)
	switch {
	case holds:
		return 0
	case s.reason != "" || !s.block.CIDR.IsValid():
		return 3
	case err == nil:
		return 1
	case errors.Is(err, ipblock.ErrQuarantined):
		return 2
	default:
		return 4
	}
}

// findSources finds the node blocks: those that people bring, else the one that was bought, towards which it takes the
// next step.
func (p *pass) findSources(ctx context.Context) ([]source, error) {
	seen, err := p.observeBlocks(ctx, false)
	if err != nil {
		return nil, err
	}
	if len(seen.brought) == 0 {
		bought, err := p.bought(ctx, seen)
		if err != nil {
			return nil, err
		}
		return []source{bought}, nil
	}
	var all []source
	for _, object := range seen.brought {
		brought, err := p.brought(ctx, seen, object)
		if err != nil {
			return nil, err
		}
		all = append(all, brought)
	}
	return all, nil
}

// brought is the source that a person brings with an object. It is assigned when it is used, and never deleted.
func (p *pass) brought(ctx context.Context, seen blocks, object ipblock.Record) (source, error) {
	id := object.BlockID
	other := slices.IndexFunc(seen.shared, func(r ipblock.Record) bool {
		return r.BlockID == id && r.Name != object.Name
	})
	at := slices.IndexFunc(seen.Sightings, func(s network.Sighting) bool { return s.Block.ID == id })
	switch {
	case other >= 0: // which has the addresses would be chance
		return unavailable("IPBlocks %s and %s are both of IP block %s; delete one of them", object.Name,
			seen.shared[other].Name, id), nil
	case at < 0 && p.network.Listed(id):
		return source{}, nil // the API shows it again in a moment
	case at < 0:
		return unavailable("IPBlock %s is of IP block %s, which the account does not have; delete it, and create one "+
			"for a block that the phoenixNAP portal shows", object.Name, id), nil
	}
	block := seen.Sightings[at].Block
	if !block.SystemManaged && !network.Brought(block, p.cluster(), []string{id}) {
		return unavailable("IPBlock %s is of IP block %s (%s), which was bought for something else, or has the tag %s "+
			"of another cluster; bring another block, or remove its tags in the phoenixNAP portal", object.Name, id,
			block.CIDR, contract.TagCluster), nil
	}
	current, err := p.ledgerOf(ctx, block)
	if err != nil {
		return source{}, err
	}
	step := ipblock.EnsureBrought(seen.Sightings[at], current.AssignedHere, seen.Account)
	if step.Action == ipblock.Refuse {
		return unavailable("IPBlock %s cannot be used for the nodes' own addresses: %s", object.Name,
			p.refusal(step)), nil
	}
	return source{block: block, ledger: current, step: &step}, nil
}

// refusal says of a brought block why it cannot be used, and what to do.
func (p *pass) refusal(s ipblock.Step) string {
	of := fmt.Sprintf("IP block %s (%s)", s.Block.ID, s.Block.CIDR)
	switch s.Reason {
	case ipblock.LocationMismatch:
		return fmt.Sprintf("%s is in location %s; bring one in %s, where public network %s is", of, s.Block.Location,
			p.network.Location, p.network.ID)
	case ipblock.BlockElsewhere:
		return fmt.Sprintf("%s is assigned to %s instead of public network %s; remove it there", of, s.Block.ResourceID,
			p.network.ID)
	default:
		return s.Detail
	}
}

// prepare takes the step that a source still needs, at most once in a pass.
func (p *pass) prepare(ctx context.Context, s *source) error {
	if s.step == nil {
		return nil
	}
	step := *s.step
	s.step = nil
	if step.Action == ipblock.Assign && !s.ledger.AssignedHere {
		s.ledger.AssignedHere = true
		saved, err := p.config.Ledgers.Save(ctx, s.ledger)
		if err != nil {
			return err
		}
		s.ledger = saved
	}
	after, err := p.follow(ctx, step, s.ledger)
	s.reason = after.reason
	s.text = after.text
	s.usable = after.usable
	return err
}

func unavailable(format string, args ...any) source {
	return source{reason: ReasonNodeBlockUnavailable, text: fmt.Sprintf(format, args...)}
}
