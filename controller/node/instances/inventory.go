package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

const (
	// DefaultWindow is how old a list of servers may be when it is used again.
	DefaultWindow = 15 * time.Second
	// PeriodicMaxAge is the maximum age of a list for periodic work, such as the checks of a Node that is not ready for
	// long: all such work together costs one request in this time.
	PeriodicMaxAge = 45 * time.Second
	// failureWindow is how long a failed list request is reused: no request for every Node while the API fails.
	failureWindow = 3 * time.Second
	// lookupTimeout bounds a read by ID: the reads are sequential, one for each Node that is not ready.
	lookupTimeout = 10 * time.Second
	// lookupLife is how long the result of a read by ID is kept that no one uses.
	lookupLife = 5 * time.Minute
)

// Source is the part of the API that the inventory uses.
type Source interface {
	Servers(ctx context.Context) ([]pnap.Server, error)
	Server(ctx context.Context, id string) (pnap.Server, error)
}

// List is the servers of the account at one instant. It is shared: do not change it.
type List struct {
	// ByID holds the servers.
	ByID map[string]pnap.Server
	// AskedAt is when the request was sent; a missing server may have been created later.
	AskedAt time.Time
	// Peak is the number of servers in the longest list of the last ten minutes, this one included.
	Peak int
}

// Check returns an error for an empty list: it cannot be of the cluster's account.
func (l List) Check() error {
	if len(l.ByID) > 0 {
		return nil
	}
	return errors.New("the list of servers is empty: check that the credentials belong to the account that owns the " +
		"servers")
}

// Inventory serves all Nodes from one list of servers, with one request for each window.
type Inventory struct {
	config InventoryConfig
	flight singleflight.Group

	mu      sync.Mutex
	list    List
	listErr error
	failed  time.Time
	single  map[string]lookup
	lengths []length

	lookupErr    error
	lookupFailed time.Time
	// repeated is when KnownServer last read a server that it knew.
	repeated time.Time
}

// length is the number of servers in a list.
type length struct {
	at    time.Time
	count int
}

// lookup is the result of a read by ID, which may be negative.
type lookup struct {
	server          pnap.Server
	err             error
	askedAt, usedAt time.Time
}

// InventoryConfig configures an Inventory.
type InventoryConfig struct {
	// Source is the API.
	Source Source
	// Window is how old a list may be when it is used again; 0 means DefaultWindow.
	Window time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Metrics count the lists; nil for none.
	Metrics *Metrics
}

// NewInventory returns an empty inventory.
func NewInventory(config InventoryConfig) *Inventory {
	config.Window = cmp.Or(config.Window, DefaultWindow)
	config.Metrics = cmp.Or(config.Metrics, NewMetrics())
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Inventory{config: config, single: map[string]lookup{}}
}

// List returns the servers of the account, at most one window old.
func (i *Inventory) List(ctx context.Context) (List, error) { return i.Recent(ctx, i.config.Window) }

// Recent is List with the given maximum age.
func (i *Inventory) Recent(ctx context.Context, age time.Duration) (List, error) {
	if list, ok, err := i.recentList(age); ok {
		i.config.Metrics.used("hit")
		return list, err
	}
	// The request serves all waiting callers, so it must not end because the first of them gives up.
	detached := context.WithoutCancel(ctx)
	result := i.flight.DoChan("list", func() (any, error) { return i.fetchList(detached) })
	select {
	case <-ctx.Done():
		return List{}, ctx.Err()
	case answer := <-result:
		if answer.Err != nil {
			return List{}, answer.Err
		}
		list, _ := answer.Val.(List) // fetchList returns nothing else
		return list, nil
	}
}

// recentList returns the last result, if it is recent enough to be used again.
func (i *Inventory) recentList(age time.Duration) (List, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.list.ByID != nil && i.config.Now().Sub(i.list.AskedAt) < age {
		return i.list, true, nil
	}
	if i.listErr != nil && i.config.Now().Sub(i.failed) < failureWindow {
		return List{}, true, i.listErr
	}
	return List{}, false, nil
}

func (i *Inventory) fetchList(ctx context.Context) (List, error) {
	if list, ok, err := i.recentList(i.config.Window); ok { // another request ended between the check and the flight
		return list, err
	}
	askedAt := i.config.Now()
	servers, err := i.config.Source.Servers(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.listErr = err
		i.failed = i.config.Now()
		i.config.Metrics.used("failed")
		return List{}, err
	}
	i.config.Metrics.fetched(askedAt)
	byID := make(map[string]pnap.Server, len(servers))
	for _, server := range servers {
		byID[server.ID] = server
	}
	i.list = List{ByID: byID, AskedAt: askedAt, Peak: i.peak(askedAt, len(byID))}
	i.listErr = nil
	return i.list, nil
}

// peak records the length of a list and returns the maximum within the window. The previous list always counts.
func (i *Inventory) peak(at time.Time, count int) int {
	last := len(i.lengths) - 1
	old := 0
	for old < last && at.Sub(i.lengths[old].at) >= breakerWindow {
		old++
	}
	i.lengths = append(i.lengths[old:], length{at: at, count: count})
	return slices.MaxFunc(i.lengths, func(a, b length) int { return a.count - b.count }).count
}

// Server reads one server by its ID. Results are cached for one window, errors of the API too. After a request without
// an answer the next ones fail at once for a while, so that one hanging request does not delay the other Nodes.
func (i *Inventory) Server(ctx context.Context, id string) (pnap.Server, error) {
	return i.read(ctx, id, func(known lookup, now time.Time) bool { return now.Sub(known.askedAt) < i.config.Window })
}

// KnownServer is Server for a server of which nothing new is expected. All such servers together cost one request in
// the time of PeriodicMaxAge: the more there are, the older a result may be.
func (i *Inventory) KnownServer(ctx context.Context, id string) (pnap.Server, error) {
	return i.read(ctx, id, func(known lookup, now time.Time) bool {
		if now.Sub(known.askedAt) < time.Duration(len(i.single))*PeriodicMaxAge ||
			now.Sub(i.repeated) < PeriodicMaxAge {
			return true
		}
		i.repeated = now
		return false
	})
}

// read reads one server by its ID, unless a result is known that will do. The function is called with the lock held.
func (i *Inventory) read(ctx context.Context, id string, willDo func(known lookup, now time.Time) bool) (pnap.Server,
	error) {
	known, ok, err := i.recentLookup(id, willDo)
	switch {
	case err != nil:
		return pnap.Server{}, fmt.Errorf("server %s is not read because another read just failed: %w", id, err)
	case ok:
		return known.server, known.err
	}
	return i.ServerNow(ctx, id)
}

// ServerNow reads one server by its ID as it is now, for the decision to change it.
func (i *Inventory) ServerNow(ctx context.Context, id string) (pnap.Server, error) {
	askedAt := i.config.Now()
	limited, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	server, err := i.config.Source.Server(limited, id)
	if ctx.Err() == nil {
		i.keepLookup(id, lookup{server: server, err: err, askedAt: askedAt, usedAt: askedAt})
	}
	return server, err
}

func (i *Inventory) keepLookup(id string, answer lookup) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case answer.err == nil || pnap.IsInaccessible(answer.err):
		i.single[id] = answer
		i.lookupErr = nil
	case pnap.IsUnanswered(answer.err):
		i.lookupErr = answer.err
		i.lookupFailed = i.config.Now()
	}
}

// recentLookup returns a result for the server that will do, if any, or the recent failure of any read.
func (i *Inventory) recentLookup(id string, willDo func(known lookup, now time.Time) bool) (known lookup, ok bool,
	err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.config.Now()
	maps.DeleteFunc(i.single, func(_ string, old lookup) bool { return now.Sub(old.usedAt) >= lookupLife })
	if known, ok = i.single[id]; ok {
		known.usedAt = now
		i.single[id] = known
		ok = willDo(known, now)
	}
	if !ok && i.lookupErr != nil && now.Sub(i.lookupFailed) < failureWindow {
		err = i.lookupErr
	}
	return known, ok, err
}
