package election

import (
	"fmt"
	"net/netip"
	"slices"
)

// keepLeases has the kubelets renew the Leases of their Nodes from now on, four times as often as is needed.
func (w *world) keepLeases() {
	w.renewals = map[string]int{}
	var renew func()
	renew = func() {
		for _, m := range w.nodes {
			if (!m.noKubelet || m.alive && !m.paused && m.isolated) && !m.noAPI && !w.apiDown {
				w.renewals[m.name]++
			}
		}
		w.after(w.rules.nodeLease/4, renew)
	}
	renew()
}

// onServer does something with all agents of a machine, of which there are two during an update.
func (m *machine) onServer(do func(*machine)) {
	for _, other := range slices.Clone(m.w.nodes) {
		if other.index == m.index {
			do(other)
		}
	}
}

func (m *machine) setKubelet(runs bool) { m.onServer(func(m *machine) { m.noKubelet = !runs }) }

// powerOff ends everything on a machine at once, powerOn starts it again.
func (m *machine) powerOff() {
	m.setKubelet(false)
	m.onServer((*machine).stop)
}

func (m *machine) powerOn() {
	m.setKubelet(true)
	m.start()
}

// suspend stops everything on a machine, as a debugger or faulty firmware does, until revive. What is sent to it is
// lost, and its watch has to be opened again.
func (m *machine) suspend() {
	m.setKubelet(false)
	m.onServer(func(m *machine) {
		m.pause()
		m.suspended = m.paused
	})
}

func (m *machine) revive() {
	m.setKubelet(true)
	m.onServer(func(m *machine) {
		m.resume()
		m.w.relist(m)
	})
}

// isSent reports whether an input is what others send, not an answer that the process waits for.
func isSent(in Input) bool {
	switch in := in.(type) {
	case Heard, ReplaySuspect:
		return true
	case Read:
		return !in.Asked
	default:
		return false
	}
}

// examine answers with what the API server and the wire show about members.
func (w *world) examine(m *machine, members map[string][]netip.Addr) {
	claimed := map[string]bool{}
	for name, addresses := range members {
		claimed[name] = slices.ContainsFunc(addresses, func(a netip.Addr) bool { return w.isClaimed(m, a) })
	}
	w.request(m, Examined{}, func() func() Input {
		answer := Examined{}
		for name := range members {
			evidence := Evidence{Off: w.declared[name] || !w.exists(name), Claimed: claimed[name]}
			if n := w.renewals[name]; n > 0 {
				evidence.Renewal = fmt.Sprint(n)
				evidence.Duration = w.rules.nodeLease
			}
			answer[name] = evidence
		}
		return func() Input { return answer }
	})
}

// isClaimed reports whether a machine hears that another one answers for an address.
func (w *world) isClaimed(m *machine, a netip.Addr) bool {
	return slices.ContainsFunc(w.nodes, func(other *machine) bool {
		return other != m && other.answers(a) && !other.deaf[m.index] && !m.deaf[other.index]
	})
}

// exists reports whether there is a Node of that name.
func (w *world) exists(name string) bool {
	return slices.ContainsFunc(w.nodes, func(m *machine) bool { return m.name == name })
}
