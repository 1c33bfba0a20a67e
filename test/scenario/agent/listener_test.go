//go:build linux

package agent

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// TestListener: a real socket hears the requests of others and the replies of this machine's kernel, and still hears
// them when the interface was deleted and made again.
func TestListener(t *testing.T) {
	n := newNetwork(t)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var heard []arp.Heard
	listener := arp.NewListener(func() string { return nodeVIF }, func(h arp.Heard) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, h)
	})
	var group sync.WaitGroup
	group.Go(func() {
		// Sockets are opened by this goroutine's thread, which joins the node's namespace and is never unlocked.
		runtime.LockOSThread()
		if err := netns.Set(n.node); err != nil {
			t.Error(err)
			return
		}
		_ = listener.Run(ctx)
	})
	node := netip.MustParseAddr("192.0.2.2")
	gateway := netip.MustParseAddr("192.0.2.1")
	hearsBoth := func(when string) {
		t.Helper()
		for deadline := time.Now().Add(limits.Wait); ; {
			mu.Lock()
			heard = nil
			mu.Unlock()
			n.in(n.gateway, func() {
				_, err := arp.NewProber().Ask(ctx, "port1.100", []arp.Question{{Target: node, Source: gateway}})
				n.must("ask", err)
			})
			mu.Lock()
			request := false
			reply := false
			for _, h := range heard {
				request = request || !h.Own && h.Asks() && h.Target == node && h.Address == gateway
				reply = reply || h.Own && h.Reply && h.Address == node
			}
			mu.Unlock()
			if request && reply {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the request was heard: %t, our own reply: %t", when, request, reply)
			}
		}
	}
	hearsBoth("at first")
	n.must("delete", netlink.LinkDel(n.link(nodeVIF)))
	n.addVLAN("bond0", nodeVIF, vlanID, "192.0.2.2/28")
	n.waitForCarrier()
	hearsBoth("after the interface was made again")
	if c := listener.Counters(); c.Heard == 0 || c.Sent == 0 {
		t.Errorf("counted %+v", c)
	}
	cancel()
	group.Wait()
}
