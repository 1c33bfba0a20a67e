package vip

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

// fullNetwork is a public network of schedulers, in a time of its own.
type fullNetwork struct {
	now       time.Time
	nodes     []*Scheduler
	addresses []netip.Addr
	// periodic reports that holders announce all the time, as kube-vip does; silent, that no machine answers.
	periodic, silent bool
	// shift moves every address to the next node.
	shift  int
	probes int
}

// The largest network: an election has no more members, and the blocks of a network have no more addresses for
// Services. Addresses do not depend on each other, so a part of them shows the load of all.
const (
	fullNodes     = 120
	fullAddresses = 130
	part          = 10
)

func newFullNetwork(periodic, silent bool) *fullNetwork {
	n := &fullNetwork{now: time.Unix(1e9, 0), periodic: periodic, silent: silent}
	for range fullNodes {
		n.nodes = append(n.nodes, NewScheduler(func() {}))
	}
	for i := range fullAddresses / part {
		n.addresses = append(n.addresses, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
	}
	n.place()
	return n
}

// holder is the node that holds the address with a number; negative for none.
func (n *fullNetwork) holder(address int) int {
	if n.silent {
		return -1
	}
	return (address + n.shift) % len(n.nodes)
}

func (n *fullNetwork) mac(node int) string { return fmt.Sprintf("02:00:00:00:00:%02x", node) }

// place has every node know what it holds.
func (n *fullNetwork) place() {
	for i, s := range n.nodes {
		involved := map[netip.Addr]bool{}
		for at, a := range n.addresses {
			involved[a] = n.holder(at) == i
		}
		s.Watch(involved)
	}
}

// announce has the holders announce all addresses once.
func (n *fullNetwork) announce() {
	for at, a := range n.addresses {
		from := n.holder(at)
		n.hear(from, arp.Announcement{Address: a, MAC: n.mac(from), Target: a, Reply: true})
	}
}

func (n *fullNetwork) hear(from int, packet arp.Announcement) {
	for i, s := range n.nodes {
		s.Hear(arp.Heard{Announcement: packet, At: n.now, Own: i == from})
	}
}

// probe has a node send what is due. The request for an address that it holds itself gets no reply.
func (n *fullNetwork) probe(node int) {
	s := n.nodes[node]
	for _, a := range s.Due(n.now) {
		n.probes++
		request := arp.Announcement{Address: netip.AddrFrom4([4]byte{198, 51, 100, byte(node)}), MAC: n.mac(node),
			Target: a}
		n.hear(node, request)
		var answer arp.Answer
		if holder := n.holder(int(a.As4()[3])); holder >= 0 && holder != node {
			answer = arp.Answer{MACs: []string{n.mac(holder)}, Replied: true}
		} else {
			n.hear(node, request)
		}
		s.Answered(a, answer, n.now)
	}
}

// pass lets time pass, and returns how many probes a second there are with all addresses.
func (n *fullNetwork) pass(d time.Duration) float64 {
	const tick = 200 * time.Millisecond
	before := n.probes
	for step := range int(d / tick) {
		if n.periodic && step%int(garpPeriod/tick) == 0 {
			n.announce()
		}
		for node := range n.nodes {
			n.probe(node)
		}
		n.now = n.now.Add(tick)
	}
	return part * float64(n.probes-before) / d.Seconds()
}

// TestLoadOfAFullNetwork computes how many questions a second there are in the largest network: each is one broadcast,
// or three where it gets no reply. If every node asked by itself there would be 918.
func TestLoadOfAFullNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		periodic, silent bool
		steady, moved    float64
	}{
		"kube-vip announces":      {periodic: true, steady: 60, moved: 200},
		"the agents announce":     {steady: 60, moved: 200},
		"every address is silent": {silent: true, steady: fullNodes * fullAddresses / 30},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFullNetwork(tc.periodic, tc.silent)
			n.pass(time.Minute) // each node has to learn the state of each address
			if got := n.pass(2 * time.Minute); got > tc.steady {
				t.Errorf("%.0f questions a second, want at most %.0f", got, tc.steady)
			} else {
				t.Logf("%.0f questions a second", got)
			}
			if tc.silent {
				return
			}
			n.shift++
			n.place()
			n.announce()
			if got := n.pass(20 * time.Second); got > tc.moved {
				t.Errorf("%.0f questions a second in the 20 s after all addresses moved, want at most %.0f", got,
					tc.moved)
			} else {
				t.Logf("%.0f questions a second in the 20 s after all addresses moved", got)
			}
		})
	}
}
