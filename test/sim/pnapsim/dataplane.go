package pnapsim

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim/dataplane"
)

// DataPlane is what switches and routers do at a moment.
type DataPlane = dataplane.DataPlane

// DataPlaneNetwork is one public network of a DataPlane.
type DataPlaneNetwork = dataplane.Network

// DataPlaneBlock is one block that the router serves.
type DataPlaneBlock = dataplane.Block

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

// DataPlane returns the current state: blocks while "assigned", members while their VLAN is open.
func (s *Sim) DataPlane() DataPlane {
	defer s.enter()()
	s.refreshFeed()
	return cloneDataPlane(s.feed.current)
}

func cloneDataPlane(p DataPlane) DataPlane {
	p.Networks = slices.Clone(p.Networks)
	for i := range p.Networks {
		p.Networks[i].Blocks = slices.Clone(p.Networks[i].Blocks)
		p.Networks[i].Members = slices.Clone(p.Networks[i].Members)
	}
	return p
}

// refreshFeed gives the data plane a new revision when it changed.
func (s *Sim) refreshFeed() {
	networks := s.dataPlaneNetworks()
	if s.feed.current.Networks != nil && slices.EqualFunc(networks, s.feed.current.Networks, equalNetworks) {
		return
	}
	s.feed.current = DataPlane{Revision: s.feed.current.Revision + 1, Networks: networks}
	s.feed.ring()
}

func equalNetworks(a, b DataPlaneNetwork) bool {
	return a.ID == b.ID && a.Name == b.Name && a.VLAN == b.VLAN &&
		slices.Equal(a.Blocks, b.Blocks) && slices.Equal(a.Members, b.Members)
}

func (s *Sim) dataPlaneNetworks() []DataPlaneNetwork {
	networks := []DataPlaneNetwork{}
	for _, a := range s.accounts {
		for _, n := range a.networks {
			networks = append(networks, s.dataPlaneNetwork(a, n))
		}
	}
	slices.SortFunc(networks, func(a, b DataPlaneNetwork) int { return strings.Compare(a.ID, b.ID) })
	return networks
}

func (s *Sim) dataPlaneNetwork(a *account, n *network) DataPlaneNetwork {
	out := DataPlaneNetwork{ID: n.id, Name: n.name, VLAN: n.vlan, Blocks: []DataPlaneBlock{}, Members: []string{}}
	for _, id := range n.blocks {
		if b := a.blocks[id]; b != nil && b.status == blockAssigned {
			gateway := gatewayOf(b.cidr, s.first31())
			out.Blocks = append(out.Blocks, DataPlaneBlock{ID: b.id, CIDR: b.cidr.String(), Gateway: gateway.String()})
		}
	}
	for _, srv := range a.servers {
		if m := srv.member(n.id); m != nil && m.open {
			out.Members = append(out.Members, srv.id)
		}
	}
	slices.SortFunc(out.Blocks, func(a, b DataPlaneBlock) int { return strings.Compare(a.ID, b.ID) })
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
	due, planned := s.events.next()
	s.mu.Unlock()
	if current != revision {
		return
	}
	if !planned {
		due = s.clock.Now().Add(s.clientTime(feedWait))
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
