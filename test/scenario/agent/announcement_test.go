//go:build linux

package agent

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// TestAnnouncement asks a real wire who holds the address of a Service. The gateway's namespace stands for another
// node.
func TestAnnouncement(t *testing.T) {
	here := func(n *network) { n.addAddress(nodeVIF, serviceVIP+"/32") }
	there := func(n *network) { n.in(n.gateway, func() { n.addAddress("port1.100", serviceVIP+"/32") }) }
	for name, tc := range map[string]struct {
		state  []func(n *network)
		status check.Status
		reason string
	}{
		"no one":       {nil, check.Fail, vip.ReasonNoAnswer},
		"this node":    {[]func(*network){here}, check.OK, vip.ReasonAnswered},
		"another node": {[]func(*network){there}, check.OK, vip.ReasonAnswered},
		"both":         {[]func(*network){here, there}, check.Fail, vip.ReasonDuplicate},
		"the wrong interface": {[]func(*network){func(n *network) { n.addAddress("bond0", serviceVIP+"/32") }},
			check.Fail, vip.ReasonWrongInterface},
		"no way back": {[]func(*network){here, func(n *network) {
			n.must("no default route", netlink.RouteDel(&netlink.Route{Gw: []byte{192, 0, 2, 1}}))
		}}, check.Fail, vip.ReasonReturnPath},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			for _, change := range tc.state {
				change(n)
			}
			e := expected()
			e.Virtual = []netip.Addr{netip.MustParseAddr(serviceVIP)}
			s, report := n.look(e)
			seen, err := vip.Observe(t.Context(), arp.NewProber(), netstate.NewReader(),
				vip.View{Report: report, Snapshot: s}, []vip.Target{{Address: e.Virtual[0], Service: "default/web"}})
			n.must("observe", err)
			if f := vip.Evaluate(seen[0]); f.Status != tc.status || f.Reason != tc.reason {
				t.Errorf("%s %s (%s), want %s %s", f.Status, f.Reason, f.Observed, tc.status, tc.reason)
			}
		})
	}
}

// TestWatch: the kernel's own events cause a check at once, and so does the subscription, because what changed before
// it is not reported.
func TestWatch(t *testing.T) {
	n := newNetwork(t)
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	var group sync.WaitGroup
	failed := make(chan error, 1)
	group.Go(func() {
		// The subscription belongs to the namespace in which it is made, so the goroutine joins the node's.
		if err := netns.Set(n.node); err != nil {
			failed <- err
			return
		}
		failed <- netstate.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"subscription", func() {}},
		{"change of a link", func() { n.must("down", netlink.LinkSetDown(n.link(nodeVIF))) }},
		{"change of an address", func() { n.addAddress("bond0", "10.9.9.9/32") }},
		{"change of a route", func() {
			n.must("route", netlink.RouteReplace(&netlink.Route{LinkIndex: n.link("bond0").Attrs().Index,
				Dst: netlink.NewIPNet([]byte{10, 8, 8, 8})}))
		}},
	} {
		step.change()
		select {
		case <-changed:
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(limits.Wait):
			t.Fatalf("a %s was not reported within %s", step.name, limits.Wait)
		}
		drain(changed)
	}
	cancel()
	group.Wait()
	if err := <-failed; err != nil {
		t.Errorf("Watch ended with %v after its context, want nil", err)
	}
}

func drain(events chan struct{}) {
	for {
		select {
		case <-events:
		case <-time.After(100 * time.Millisecond):
			return
		}
	}
}
