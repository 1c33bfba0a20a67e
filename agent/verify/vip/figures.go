package vip

import (
	"net/netip"
	"slices"
	"time"
)

// Figures are what the watcher counted.
type Figures struct {
	// Asked is the number of questions that were put; each is up to three ARP requests.
	Asked uint64
	// Addresses are those that are watched at the moment.
	Addresses []AddressFigures
}

// AddressFigures are those of one address.
type AddressFigures struct {
	// Address, and namespace/name of the Service that has it; empty when none has it any more.
	Address netip.Addr
	Service string
	// Machines is how many machines claim the address, this one included.
	Machines int
	// Mismatch is for how long in all the wire or the kernel have contradicted the lease since the address is watched:
	// its holder is silent (PN602), this node carries it against the lease (PN603), or another node answers (PN607).
	Mismatch time.Duration
}

// Figures returns what was counted so far. It is safe for concurrent use.
func (w *Watcher) Figures() Figures {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Figures{Asked: w.figures.Asked, Addresses: slices.Clone(w.figures.Addresses)}
}

func (w *Watcher) count(questions int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures.Asked += uint64(questions) //nolint:gosec // a length
}

// account notes the figures of the addresses.
func (w *Watcher) account(opinions []assessment) {
	addresses := make([]AddressFigures, 0, len(opinions))
	for _, o := range opinions {
		st := w.states[o.Address]
		addresses = append(addresses, AddressFigures{Address: o.Address, Service: o.Service, Machines: st.machines,
			Mismatch: st.mismatch})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures.Addresses = addresses
}
