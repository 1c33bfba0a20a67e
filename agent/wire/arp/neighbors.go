package arp

import (
	"net"
	"net/netip"
	"sync"
)

// Neighbors are the hardware addresses at which others were last heard. The zero value is ready to use.
type Neighbors struct {
	mu   sync.Mutex
	macs map[netip.Addr]net.HardwareAddr
}

// Last returns where an address was last heard, nil when it was not, or at several places.
func (n *Neighbors) Last(a netip.Addr) net.HardwareAddr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.macs[a]
}

// Learn takes the answer of an address.
func (n *Neighbors) Learn(a netip.Addr, answer Answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.macs, a)
	if !answer.Replied || len(answer.MACs) != 1 {
		return
	}
	if mac, err := net.ParseMAC(answer.MACs[0]); err == nil {
		if n.macs == nil {
			n.macs = map[netip.Addr]net.HardwareAddr{}
		}
		n.macs[a] = mac
	}
}
