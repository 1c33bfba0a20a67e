//go:build linux

package agent

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// inside runs the parts of a monitor in the namespace of a node, whatever thread they are called on.
type inside struct {
	node   netns.NsHandle
	reader *netstate.Reader
	prober undelayed
}

// at runs do on a thread that ends with it, for its namespace is another's.
func (i inside) at(do func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(i.node)
		if err == nil {
			do()
		}
		done <- err
	}()
	return <-done
}

func (i inside) Read(ctx context.Context) (s check.Snapshot, err error) {
	if entered := i.at(func() { s, err = i.reader.Read(ctx) }); entered != nil {
		return s, entered
	}
	return s, err
}

func (i inside) Routes(s check.Snapshot, questions []check.RouteQuestion) (answers []check.RouteAnswer) {
	if i.at(func() { answers = i.reader.Routes(s, questions) }) != nil {
		return nil
	}
	return answers
}

func (i inside) Ask(ctx context.Context, name string, questions []arp.Question) (answers []arp.Answer, err error) {
	if entered := i.at(func() { answers, err = i.prober.Ask(ctx, name, questions) }); entered != nil {
		return nil, entered
	}
	return answers, err
}

func (i inside) Watch(ctx context.Context, changed func()) (err error) {
	if entered := i.at(func() { err = i.reader.Watch(ctx, changed) }); entered != nil {
		return entered
	}
	return err
}

// observer keeps the latest sample of a running monitor.
type observer struct {
	mu     sync.Mutex
	report check.Report
	seen   bool
}

func (o *observer) record(s sampler.Sample) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.report = s.Report
	o.seen = true
}

func (o *observer) first() (check.Finding, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.seen {
		return check.Finding{Reason: "no sample yet"}, true
	}
	return o.report.FirstCause()
}

// await returns how long it took until the first cause was as wanted, without the time that this machine stood still:
// one that is busy with other things says nothing of the agent.
func (o *observer) await(t *testing.T, what, reason string, within time.Duration) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond
	var stalled time.Duration
	began := time.Now()
	for last := began; ; {
		first, found := o.first()
		took := time.Since(began) - stalled
		if reason == "" && !found || reason != "" && first.Reason == reason {
			return took
		}
		if took > within {
			t.Fatalf("%s: after %s (and %s of standstill) the first cause is %s %s (%s)", what, took, stalled, first.ID,
				first.Reason, first.Cause)
		}
		time.Sleep(tick)
		now := time.Now()
		stalled += max(0, now.Sub(last)-2*tick)
		last = now
	}
}

// seenWithin is how soon a change that the kernel reports is seen, and repaired by a managing agent.
const seenWithin = 2 * time.Second

// TestSeenByKernelEvent runs the monitor as the agent does, on a node that breaks where the kernel reports it. Only an
// event makes the monitor look: its interval is longer than the test.
func TestSeenByKernelEvent(t *testing.T) {
	s := newServer(t)
	s.sound(patience)
	parts := inside{node: s.node, reader: s.reader, prober: undelayed{s.prober}}
	var o observer
	expected := s.expected
	m := sampler.New(sampler.Config{Reader: parts, Prober: parts, Watch: parts.Watch, Interval: time.Hour,
		Record:   o.record,
		Expected: func() check.Expected { return expected }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the monitor ended with %v", err)
		}
	}()
	o.await(t, "at the start", "", patience)

	var slowest, slowestEnd time.Duration
	for _, f := range []fault{
		row("VLAN interface down", "VLANInterfaceDown",
			func(s *server) { s.must("down", netlink.LinkSetDown(s.link(nodeVIF))) }, (*server).raise),
		row("VLAN interface deleted", "VLANInterfaceMissing",
			func(s *server) { s.must("delete", netlink.LinkDel(s.link(nodeVIF))) }, (*server).remakeVLAN),
		row("address deleted", "AddressMissing", func(s *server) { s.delAddress(nodeVIF, "192.0.2.2/28") },
			(*server).remakeVLAN),
		row("strict reverse path", "StrictReversePath", func(s *server) { s.conf("rp_filter", "1") },
			func(s *server) { s.conf("rp_filter", "2") }),
		row("forwarding off", "ForwardingOffHere", func(s *server) { s.conf("forwarding", "0") },
			func(s *server) { s.conf("forwarding", "1") }),
		row("table lost", "TableEmpty", func(s *server) { s.flush(ownTable) }, (*server).routes),
		row("rule lost", "ReturnPathElsewhere", func(s *server) { s.must("delete", netlink.RuleDel(bySource())) },
			func(s *server) { s.must("add", netlink.RuleAdd(bySource())) }),
		row("cables cut", "UplinkNoCarrier", func(s *server) { s.ports(netlink.LinkSetDown) },
			func(s *server) { s.ports(netlink.LinkSetUp) }),
	} {
		f.make(s)
		slowest = max(slowest, o.await(t, f.name, f.reason, limits.Wait))
		time.Sleep(time.Second)
		f.repair(s)
		slowestEnd = max(slowestEnd, o.await(t, f.name+", repaired", "", limits.Wait))
		time.Sleep(time.Second)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure agent_fault_seen_in_kernel_max %.2f s\n"+
		"figure agent_repair_seen_in_kernel_max %.2f s\n", slowest.Seconds(), slowestEnd.Seconds())
	if limits.Late(slowest, seenWithin) || limits.Late(slowestEnd, seenWithin+3*s.prober.Interval) {
		t.Errorf("a fault was seen after %s, a repair after %s, want at most %s", slowest, slowestEnd, seenWithin)
	}
}

func row(name, reason string, spoil, repair func(*server)) fault {
	return fault{name: name, make: spoil, repair: repair, reason: reason}
}

// raise sets the VLAN interface up and makes the routes that went with it.
func (s *server) raise() {
	s.t.Helper()
	s.must("up", netlink.LinkSetUp(s.link(nodeVIF)))
	s.waitForCarrier()
	s.routes()
}
