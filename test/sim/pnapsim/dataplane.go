package pnapsim

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// DataPlane is what switches and routers do at a moment.
type DataPlane = dataplane.DataPlane

// feedWait bounds how long a request for the data plane waits for a newer one.
const feedWait = 10 * time.Second

// feed is the latest data plane and the bell for those who wait for the next.
type feed struct {
	current DataPlane
	bell    chan struct{} // closed and replaced when there is something to check
}

func (f *feed) ring() {
	close(f.bell)
	f.bell = make(chan struct{})
}

// DataPlane returns the current state: blocks while "assigned", members while their VLAN is open. It is never changed:
// the next one is a new value.
func (s *Sim) DataPlane() DataPlane {
	defer s.enter()()
	s.refreshFeed()
	return s.feed.current
}

// refreshFeed gives the data plane a new revision when it changed.
func (s *Sim) refreshFeed() {
	networks := s.dataPlaneNetworks()
	if reflect.DeepEqual(networks, s.feed.current.Networks) {
		return
	}
	s.feed.current = DataPlane{Revision: s.feed.current.Revision + 1, Networks: networks}
	s.feed.ring()
}

func (s *Sim) dataPlaneNetworks() []dataplane.Network {
	networks := []dataplane.Network{}
	for _, a := range s.accounts {
		for _, n := range a.networks {
			networks = append(networks, s.dataPlaneNetwork(a, n))
		}
	}
	slices.SortFunc(networks, func(a, b dataplane.Network) int { return strings.Compare(a.ID, b.ID) })
	return networks
}

func (s *Sim) dataPlaneNetwork(a *account, n *network) dataplane.Network {
	out := dataplane.Network{ID: n.id, Name: n.name, VLAN: n.vlan, Location: n.location,
		Blocks: []dataplane.Block{}, Members: []string{}}
	for _, id := range n.blocks {
		if b := a.blocks[id]; b != nil && b.status == blockAssigned {
			gateway := gatewayOf(b.cidr, s.first31())
			out.Blocks = append(out.Blocks, dataplane.Block{ID: b.id, CIDR: b.cidr.String(), Gateway: gateway.String()})
		}
	}
	for _, srv := range a.servers {
		if m := srv.member(n.id); m != nil && m.open {
			out.Members = append(out.Members, srv.id)
		}
	}
	slices.SortFunc(out.Blocks, func(a, b dataplane.Block) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(out.Members)
	return out
}

// serveDataPlane answers GET /_fake/dataplane?revision=N once there is a revision newer than N, or with
// the current one after a bounded wait.
func (s *Sim) serveDataPlane(w http.ResponseWriter, r *http.Request) {
	known, err := strconv.ParseInt(r.URL.Query().Get("revision"), 10, 64)
	if err != nil {
		known = -1
	}
	ctx, cancel := context.WithTimeout(r.Context(), feedWait)
	defer cancel()
	for {
		state := s.DataPlane()
		if state.Revision != known || ctx.Err() != nil {
			writeJSON(w, http.StatusOK, state)
			return
		}
		s.awaitChange(ctx, known)
	}
}

// awaitChange returns when the data plane is not at revision any more, when an event is due or newly
// planned, or when ctx ends.
func (s *Sim) awaitChange(ctx context.Context, revision int64) {
	s.mu.Lock()
	bell, current := s.feed.bell, s.feed.current.Revision
	due := s.clock.Now().Add(s.clientTime(feedWait))
	if len(s.events) > 0 {
		due = s.events[0].at
	}
	s.mu.Unlock()
	if current != revision {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := make(chan struct{})
	go func() {
		defer close(timer)
		_ = s.clock.Wait(ctx, due) // either way there is something to check
	}()
	select {
	case <-bell:
		cancel()
	case <-timer:
	}
	<-timer
}
