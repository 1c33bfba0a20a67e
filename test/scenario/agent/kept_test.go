//go:build linux

package agent

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// change can be made and taken back.
type change struct {
	name       string
	make, undo func(s *server)
}

func changes() []change {
	up := netlink.LinkSetUp
	down := netlink.LinkSetDown
	set := func(name string, do func(netlink.Link) error) func(*server) {
		return func(s *server) { s.must(name, do(s.link(name))) }
	}
	mtu := func(name string, to int) func(*server) {
		return func(s *server) { s.must("MTU of "+name, netlink.LinkSetMTU(s.link(name), to)) }
	}
	return []change{
		{"VLAN interface", func(s *server) { s.must("delete", netlink.LinkDel(s.link(nodeVIF))) },
			(*server).remakeVLAN},
		{"VLAN interface down", set(nodeVIF, down), (*server).raise},
		{"member down", set("eno2", down), set("eno2", up)},
		{"member out of the bond", func(s *server) {
			s.must("release eno2", netlink.LinkSetNoMaster(s.link("eno2")))
		}, func(s *server) {
			s.must("eno2 down", down(s.link("eno2")))
			s.must("enslave eno2", netlink.LinkSetMaster(s.link("eno2"), s.link("bond0")))
			s.must("eno2 up", up(s.link("eno2")))
		}},
		{"cable", func(s *server) { s.ports(down) }, func(s *server) { s.ports(up) }},
		{"MTU", mtu(nodeVIF, 1400), mtu(nodeVIF, 1500)},
		{"no ARP", set(nodeVIF, netlink.LinkSetARPOff), set(nodeVIF, netlink.LinkSetARPOn)},
		{"alias", func(s *server) { s.must("alias", netlink.LinkSetAlias(s.link(nodeVIF), "public")) },
			func(s *server) { s.must("alias", netlink.LinkSetAlias(s.link(nodeVIF), "private")) }},
		{"pod", func(s *server) {
			s.must("add", netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "dummy0"}}))
		},
			func(s *server) { s.must("delete", netlink.LinkDel(s.link("dummy0"))) }},
		{"address", func(s *server) { s.addAddress(pods, "203.0.113.3/32") },
			func(s *server) { s.delAddress(pods, "203.0.113.3/32") }},
		{"rule", func(s *server) { s.must("delete", netlink.RuleDel(byMark())) },
			func(s *server) { s.must("add", netlink.RuleAdd(byMark())) }},
		{"table", func(s *server) { s.flush(ownTable) }, (*server).routes},
	}
}

// TestKeptTablesFollow: whatever changes in the kernel, a reader that relies on notifications reads the same as one
// that lists everything.
func TestKeptTablesFollow(t *testing.T) {
	s := newServer(t)
	s.sound(patience)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- inside{node: s.node, reader: s.reader}.Watch(ctx, func() {}) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := changes()
	for range seeds.Count(t, 2) {
		for _, i := range random.Perm(len(all)) {
			c := all[i]
			c.make(s)
			s.agree(c.name)
			c.undo(s)
			s.agree(c.name + ", undone")
		}
	}
}

// agree waits until both ways to read come to the same; some of it the kernel settles by and by.
func (s *server) agree(what string) {
	s.t.Helper()
	read := func(r *netstate.Reader) check.Snapshot {
		snapshot, err := r.Read(s.t.Context())
		s.must("read", err)
		return snapshot
	}
	for deadline := time.Now().Add(limits.Wait); ; time.Sleep(10 * time.Millisecond) {
		difference := cmp.Diff(read(netstate.NewReader()), read(s.reader),
			cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}))
		if difference == "" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: listed (-) and kept (+):\n%s", what, difference)
		}
	}
}
