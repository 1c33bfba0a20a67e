package account

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// lookups read single blocks and the index of a tag, which are not delayed as the list of blocks may be. Only in this
// way is a block found that was bought for a Service, a pool or the nodes. Concurrent callers share one request.
type lookups struct {
	api Cloud
	now func() time.Time

	mu     sync.Mutex
	blocks map[string]lookup
	tags   map[string]tagIndex
	// changes counts the calls of forget: results of requests before the last one are not kept.
	changes int
}

// lookup is the result of a read by ID.
type lookup struct {
	block plan.Block
	// found is false when the API did not show it.
	found bool
	at    time.Time
}

// tagIndex maps IDs of blocks to their values of a tag.
type tagIndex struct {
	values map[string]string
	at     time.Time
}

func newLookups(api Cloud, now func() time.Time) *lookups {
	return &lookups{api: api, now: now, blocks: map[string]lookup{}, tags: map[string]tagIndex{}}
}

// Block reads a block by its ID, requested at or after the given time and after the last change; with the zero time,
// now. A block that the API does not show is not an error.
func (l *lookups) Block(ctx context.Context, id string, after time.Time) (block plan.Block, found bool, err error) {
	if known, ok := l.knownBlock(id, after); ok {
		return known.block, known.found, nil
	}
	read := lookup{at: l.now()}
	changes := l.generation()
	read.block, err = l.api.Block(ctx, id)
	switch {
	case err == nil:
		read.found = true
	case !pnap.IsInaccessible(err):
		return plan.Block{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == changes {
		l.blocks[id] = read
	}
	return read.block, read.found, nil
}

func (l *lookups) knownBlock(id string, after time.Time) (lookup, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.blocks[id]
	return known, ok && !after.IsZero() && !known.at.Before(after)
}

// Tagged reads the values of a tag by the ID of the block, under the same conditions as Block.
func (l *lookups) Tagged(ctx context.Context, name string, after time.Time) (map[string]string, error) {
	if known, ok := l.knownTag(name, after); ok {
		return known.values, nil
	}
	read := tagIndex{at: l.now()}
	changes := l.generation()
	var err error
	if read.values, err = l.api.TagAssignments(ctx, name); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == changes {
		l.tags[name] = read
	}
	return read.values, nil
}

func (l *lookups) knownTag(name string, after time.Time) (tagIndex, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.tags[name]
	return known, ok && !after.IsZero() && !known.at.Before(after)
}

// forget removes everything: the account was changed.
func (l *lookups) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.blocks)
	clear(l.tags)
	l.changes++
}

func (l *lookups) generation() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// Search is what Find searches in addition to the list of blocks.
type Search struct {
	// Seen are the blocks that are known already, such as those of the list.
	Seen []plan.Sighting
	// IDs of blocks of a recorded purchase, a ledger or a user; empty IDs are ignored.
	IDs []string
	// Owners whose blocks are searched in the index of their tag.
	Owners []plan.Owner
	// After is the earliest time of the requests.
	After time.Time
}

// Find returns the seen blocks and those that are found by their ID or by the index of a tag. The latter only contain
// blocks that the API shows by ID. Errors are those of the API.
func (l *lookups) Find(ctx context.Context, s Search) ([]plan.Sighting, error) {
	ids := slices.Clone(s.IDs)
	for _, owner := range s.Owners {
		name, value := owner.Tag()
		named, err := l.carrying(ctx, name, value, s.After)
		if err != nil {
			return nil, err
		}
		ids = append(ids, named...)
	}
	found := slices.Clone(s.Seen)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id == "" || slices.ContainsFunc(s.Seen, func(i plan.Sighting) bool { return i.Block.ID == id }) {
			continue
		}
		block, exists, err := l.Block(ctx, id, s.After)
		if err != nil {
			return nil, err
		}
		if exists {
			found = append(found, plan.Sighting{Block: block})
		}
	}
	return found, nil
}

// Unlisted returns the blocks that, according to the index of its tag, were bought for the cluster and are not among
// the known ones: the list does not show them yet. They count towards the limit of blocks.
func (l *lookups) Unlisted(ctx context.Context, cluster string, known []plan.Block, after time.Time) ([]plan.Block,
	error) {
	ids, err := l.carrying(ctx, contract.TagCluster, cluster, after)
	if err != nil {
		return nil, err
	}
	var unlisted []plan.Block
	for _, id := range ids {
		if slices.ContainsFunc(known, func(b plan.Block) bool { return b.ID == id }) {
			continue
		}
		block, found, err := l.Block(ctx, id, after)
		if err != nil {
			return nil, err
		}
		if found && plan.OfCluster(block, cluster) {
			unlisted = append(unlisted, block)
		}
	}
	return unlisted, nil
}

// carrying returns the sorted IDs of the blocks with that value of the tag.
func (l *lookups) carrying(ctx context.Context, name, value string, after time.Time) ([]string, error) {
	tagged, err := l.Tagged(ctx, name, after)
	if err != nil {
		return nil, err
	}
	var ids []string
	for id, v := range tagged {
		if v == value {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
