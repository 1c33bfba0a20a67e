package instances

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
)

const (
	// DefaultWindow is how old a list of servers may be when it is used again.
	DefaultWindow = 15 * time.Second
	// failureWindow is how long a failed list answers for further ones, so that a dead API is not asked
	// once for every Node.
	failureWindow = 3 * time.Second
)

// Source is what the inventory asks of the API.
type Source interface {
	Servers(ctx context.Context) ([]pnap.Server, error)
	Server(ctx context.Context, id string) (pnap.Server, error)
}

// List is the servers of the account at one instant. It is shared: do not change it.
type List struct {
	// ByID holds the servers.
	ByID map[string]pnap.Server
	// AskedAt is when the request was sent; what it lacks may have come later.
	AskedAt time.Time
}

// Inventory serves all Nodes from one list of servers: one request for each window, however many ask.
type Inventory struct {
	source Source
	window time.Duration
	now    func() time.Time
	flight singleflight.Group

	mu      sync.Mutex
	list    List
	listErr error
	failed  time.Time
	single  map[string]lookup
}

// lookup is the answer about one server, also a negative one.
type lookup struct {
	server  pnap.Server
	err     error
	askedAt time.Time
}

// NewInventory returns an inventory; window 0 means DefaultWindow, now nil means time.Now.
func NewInventory(source Source, window time.Duration, now func() time.Time) *Inventory {
	if window == 0 {
		window = DefaultWindow
	}
	if now == nil {
		now = time.Now
	}
	return &Inventory{source: source, window: window, now: now, single: map[string]lookup{}}
}

// List returns the servers of the account, at most one window old.
func (i *Inventory) List(ctx context.Context) (List, error) {
	if list, ok, err := i.recentList(); ok {
		return list, err
	}
	// The request serves all that wait, so it must not end because the first of them gives up.
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

// recentList returns the last outcome, if it is recent enough to be used again.
func (i *Inventory) recentList() (List, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.list.ByID != nil && i.now().Sub(i.list.AskedAt) < i.window {
		return i.list, true, nil
	}
	if i.listErr != nil && i.now().Sub(i.failed) < failureWindow {
		return List{}, true, i.listErr
	}
	return List{}, false, nil
}

func (i *Inventory) fetchList(ctx context.Context) (List, error) {
	if list, ok, err := i.recentList(); ok { // another request ended between the look and the flight
		return list, err
	}
	askedAt := i.now()
	servers, err := i.source.Servers(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.listErr, i.failed = err, i.now()
		return List{}, err
	}
	byID := make(map[string]pnap.Server, len(servers))
	for _, server := range servers {
		byID[server.ID] = server
	}
	i.list, i.listErr = List{ByID: byID, AskedAt: askedAt}, nil
	return i.list, nil
}

// Server looks one server up by its ID, past the list. Answers are kept for one window, refusals too.
func (i *Inventory) Server(ctx context.Context, id string) (pnap.Server, error) {
	if known, ok := i.recentLookup(id); ok {
		return known.server, known.err
	}
	askedAt := i.now()
	server, err := i.source.Server(ctx, id)
	if err == nil || pnap.IsInaccessible(err) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.single[id] = lookup{server: server, err: err, askedAt: askedAt}
	}
	return server, err
}

func (i *Inventory) recentLookup(id string) (lookup, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for other, known := range i.single {
		if i.now().Sub(known.askedAt) >= i.window {
			delete(i.single, other)
		}
	}
	known, ok := i.single[id]
	return known, ok
}
