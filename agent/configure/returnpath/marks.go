//go:build linux

package returnpath

// allotment gives out the values of the mark bits, which are one supply for all networks of a machine.
type allotment struct {
	bits Bits
	// owners has the network that uses a value, by the index of the value.
	owners map[int]int
}

// allot gives each gateway of the networks a mark. One that a rule shows stays, so that neither a restart nor another
// network changes the way of existing connections; else it is that of the gateway's index, or the next that is free.
// With too few, gateways of a network share one and use the first: each is a router. Networks share none, because that
// would lead replies to another VLAN: one that comes when all are in use has none.
func allot(networks [][]gateway, bits Bits, o observed) {
	a := allotment{bits: bits, owners: map[int]int{}}
	for n, gateways := range networks {
		for i := range gateways {
			a.keep(n, &gateways[i], o)
		}
	}
	for n, gateways := range networks {
		if first(gateways) == nil && len(gateways) > 0 {
			a.take(n, &gateways[0])
		}
	}
	for n, gateways := range networks {
		for i := range gateways {
			if g := &gateways[i]; g.mark == 0 && !a.take(n, g) {
				a.share(n, g, gateways)
			}
		}
	}
}

// keep gives a gateway the mark whose rule leads to its table.
func (a *allotment) keep(network int, g *gateway, o observed) {
	for _, r := range o.rules {
		if !r.ours() || r.hasExtras || r.priority != markPriority || r.mask != uint32(a.bits) || r.table != g.table {
			continue
		}
		index := a.bits.index(r.mark)
		if _, used := a.owners[index]; index >= 0 && !used && g.mark == 0 {
			a.owners[index] = network
			g.mark = r.mark
		}
	}
}

// take gives a gateway a mark that no other has, and reports whether there is one.
func (a *allotment) take(network int, g *gateway) bool {
	count := a.bits.Count()
	for step := range min(count, len(a.owners)+1) {
		index := (g.index + step) % count
		if _, used := a.owners[index]; !used {
			a.owners[index] = network
			g.mark = a.bits.Value(index)
			return true
		}
	}
	return false
}

// share gives a gateway the mark of its index if that is its network's, else the first one of its network.
func (a *allotment) share(network int, g *gateway, gateways []gateway) {
	index := g.index % a.bits.Count()
	if owner, used := a.owners[index]; used && owner == network {
		g.mark = a.bits.Value(index)
	} else if marked := first(gateways); marked != nil {
		g.mark = marked.mark
	}
}

// first returns the first gateway that has a mark, nil for none.
func first(gateways []gateway) *gateway {
	for i := range gateways {
		if gateways[i].mark != 0 {
			return &gateways[i]
		}
	}
	return nil
}
