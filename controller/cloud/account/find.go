package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// ErrUnproven is the error of Prove if the account is perhaps not the cluster's.
var ErrUnproven = errors.New("nothing is concluded from this account")

// Prove returns the configured public network, which only the right account shows. With the credentials of another one,
// lists are empty and every ID is refused, as if everything were gone: nothing may be concluded then (ErrUnproven).
// Without a configured network there is no proof.
func (a *Account) Prove(ctx context.Context, networkID string, after time.Time) (network.Network, error) {
	public, err := a.Network(ctx, networkID, after)
	if pnap.IsInaccessible(err) {
		return network.Network{}, fmt.Errorf("%w: %s: %w", ErrUnproven, network.Unreadable(networkID), err)
	}
	return public, err
}

// Search is what Find looks for.
type Search struct {
	// Cluster is whose blocks are found by the index of their tag, should the list not show them.
	Cluster string
	// IDs are those of blocks that a purchase, a ledger or a user names; empty IDs are ignored.
	IDs []string
	// Wanted reports whether a block is looked for, beside those with the IDs.
	Wanted func(network.Block) bool
	// Trusted reports whether the list is enough for a block; nil: for none.
	Trusted func(network.Block) bool
	// Enough reports whether the index need not be read, because what was found so far leaves nothing to look for; nil:
	// it is read.
	Enough func([]network.Sighting) bool
	// List is a list that was read already; nil: it is read.
	List *Listing
	// ListAfter and After are the earliest times of the requests for the list, and for blocks and the index.
	ListAfter, After time.Time
}

// Found is what the account shows.
type Found struct {
	// Listing is the list, as it is.
	Listing
	// Wanted are the blocks that were looked for, each once. Hidden ones are listed but cannot be read by their ID,
	// though they are in the index or, not bought for the cluster, would not be in any case.
	Wanted []network.Sighting
	// Unlisted are those of the cluster that the index contains and the list lacks, or shows without the tag. Without a
	// read of the index there are none.
	Unlisted []network.Block
	// Unseen are the IDs of those of the cluster that the index contains, while neither the list nor the ID shows them,
	// or their tag.
	Unseen []string

	gone []string // the IDs of listed blocks that do not exist
}

// All are all blocks that were found: the list as it is, except for what is wanted, and the others.
func (f Found) All() []network.Block {
	var all []network.Block
	for _, s := range f.Wanted {
		all = append(all, s.Block)
	}
	for _, block := range slices.Concat(f.Unlisted, f.Blocks) {
		if !contains(all, block.ID) && !slices.Contains(f.gone, block.ID) {
			all = append(all, block)
		}
	}
	return all
}

// Find is the one way to find blocks. The list of the account may lag behind for long: it lacks new blocks, shows
// deleted ones, and old states. So a wanted block is read by its ID; blocks that are not listed are found by a recorded
// ID or by the index of the tag of the cluster; and one of the cluster that is listed, but neither has an ID that can
// be read nor is in the index, is gone. Errors are those of the API: a failed read does not mean that a block does not
// exist.
func (a *Account) Find(ctx context.Context, s Search) (Found, error) {
	if s.List == nil {
		listing, err := a.Blocks(ctx, s.ListAfter)
		if err != nil {
			return Found{}, err
		}
		s.List = &listing
	}
	f := Found{Listing: *s.List}
	if err := a.readListed(ctx, s, &f); err != nil {
		return Found{}, err
	}
	if err := a.readRecorded(ctx, s, &f); err != nil {
		return Found{}, err
	}
	hidden := func(s network.Sighting) bool { return s.Hidden }
	if s.Enough != nil && s.Enough(f.Wanted) && !slices.ContainsFunc(f.Wanted, hidden) {
		return f, nil
	}
	return f, a.readIndex(ctx, s, &f)
}

// readListed takes the wanted blocks of the list.
func (a *Account) readListed(ctx context.Context, s Search, f *Found) error {
	for _, listed := range f.Blocks {
		if !s.Wanted(listed) && !slices.Contains(s.IDs, listed.ID) {
			continue
		}
		sighting := network.Sighting{Block: listed}
		if s.Trusted == nil || !s.Trusted(listed) {
			block, found, err := a.Block(ctx, listed.ID, s.After)
			if err != nil {
				return err
			}
			if sighting.Hidden = !found; found {
				sighting.Block = block
			}
		}
		f.Wanted = append(f.Wanted, sighting)
	}
	return nil
}

// readRecorded looks for the recorded blocks that the list lacks.
func (a *Account) readRecorded(ctx context.Context, s Search, f *Found) error {
	ids := slices.Clone(s.IDs)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id == "" || contains(f.Blocks, id) {
			continue
		}
		block, found, err := a.Block(ctx, id, s.After)
		if err != nil {
			return err
		}
		if found {
			f.Wanted = append(f.Wanted, network.Sighting{Block: block})
		}
	}
	return nil
}

// readIndex looks for the blocks of the cluster that the list lacks or shows without their tag, and drops those that do
// not exist.
func (a *Account) readIndex(ctx context.Context, s Search, f *Found) error {
	tagged, err := a.tagged(ctx, contract.TagCluster, s.After)
	if err != nil {
		return err
	}
	f.Wanted = slices.DeleteFunc(f.Wanted, func(i network.Sighting) bool {
		gone := i.Hidden && network.OfCluster(i.Block, s.Cluster) && tagged[i.Block.ID] != s.Cluster
		if gone {
			f.gone = append(f.gone, i.Block.ID)
		}
		return gone
	})
	for _, id := range slices.Sorted(maps.Keys(tagged)) {
		listed := slices.ContainsFunc(f.Blocks, func(b network.Block) bool { return b.ID == id && s.shows(b) })
		if tagged[id] != s.Cluster || listed {
			continue
		}
		block, found, err := a.Block(ctx, id, s.After)
		if err != nil {
			return err
		}
		if !found || !s.shows(block) {
			f.Unseen = append(f.Unseen, id)
		}
		if !found {
			continue
		}
		if network.OfCluster(block, s.Cluster) {
			f.Unlisted = append(f.Unlisted, block)
		}
		seen := slices.ContainsFunc(f.Wanted, func(i network.Sighting) bool { return i.Block.ID == id })
		if s.Wanted(block) && !seen {
			f.Wanted = append(f.Wanted, network.Sighting{Block: block})
		}
	}
	return nil
}

// shows reports whether a block has the tag by which the index knows it.
func (s Search) shows(b network.Block) bool { return b.Tags[contract.TagCluster] == s.Cluster }

func contains(blocks []network.Block, id string) bool {
	return slices.ContainsFunc(blocks, func(b network.Block) bool { return b.ID == id })
}
