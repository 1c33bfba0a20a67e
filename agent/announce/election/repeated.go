package election

import (
	"maps"
	"net/netip"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// observeMoves counts the moves of addresses between nodes that stay members: from one that cannot serve an address, or
// to make the loads even. A node that failed or left loses its addresses once.
func (e *Election) observeMoves(next *View) {
	maps.DeleteFunc(e.moves, func(_ netip.Addr, m *failures) bool { return e.now-m.at > e.rules.movesWithin })
	if e.view == nil {
		return
	}
	for a, owner := range next.Owners {
		was := e.view.Owners[a].Node
		if was == "" || was == owner.Node || !next.has(was) {
			continue
		}
		if e.moves[a] == nil {
			e.moves[a] = &failures{}
		}
		m := e.moves[a]
		m.add(e.now, e.rules.movesWithin)
		if m.count > e.rules.freeMoves && owner.Node == e.Node {
			count := uint64(m.count) //nolint:gosec // it is positive
			e.events = append(e.events, Event{Kind: MovesOften, Address: a, Node: was, Number: count})
		}
	}
}

// mustStay reports whether an address stays for a while with an owner that cannot serve it, because it has moved often:
// the nodes may take turns at being unable to. Each move costs its connections, and every change of the view a request.
func (e *Election) mustStay(a netip.Addr) bool {
	m := e.moves[a]
	if m == nil || m.count <= e.rules.freeMoves {
		return false
	}
	until := m.at + loop.Backoff(e.rules.stay, e.rules.stayMax, m.count-e.rules.freeMoves-1)
	if e.now < until {
		e.wake(until)
	}
	return e.now < until
}
