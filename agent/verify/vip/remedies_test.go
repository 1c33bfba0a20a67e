package vip

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
)

// deletes carries out `ip address delete` on the machine.
func (m *machine) deletes(w *world, advised []string) {
	address := netip.MustParseAddr(advised[1])
	var left []string
	for _, name := range m.carries[address] {
		if name != advised[2] {
			left = append(left, name)
		}
	}
	if len(left) == len(m.carries[address]) {
		w.t.Errorf("%s has no %s on %s: it carries %v", m.name, advised[1], advised[2], m.carries)
	}
	m.carries[address] = left
	if len(left) == 0 {
		delete(m.carries, address)
	}
}

// TestEventsEndByTheirRemedy does what an event about an address says: then one machine answers for it that should, and
// no Warning follows.
func TestEventsEndByTheirRemedy(t *testing.T) {
	const command = `ip address delete ([0-9.]+)/32 dev ([a-z0-9.]+)`
	const byA = ` \(reported by node srv-1\)$`
	const restart = `; kubectl --namespace kube-system get pods --output wide --selector app.kubernetes.io/name=kube-vip;`
	// kubeVIPRuns starts kube-vip on srv-1, whose election then takes the address up.
	kubeVIPRuns := func(w *world, _ []string) { w.a.hold(w.address) }
	for name, test := range map[string]struct {
		state  func(w *world)
		reason string
		// advice is a part of the event, with the parameters of remedy.
		advice string
		remedy func(w *world, advised []string)
	}{
		"no machine answers": {func(w *world) {
			w.a.drop(w.address)
			w.lease(w.address, announcer.Released, "")
		}, EventNotAnswered, `kube-vip must run on a node that is ready for the public network` + restart, kubeVIPRuns},
		"the holder is silent": {func(w *world) { w.a.drop(w.address) }, EventNotAnswered,
			`restart kube-vip on this node, which adds the address again` + restart, kubeVIPRuns},
		"an address was left behind": {func(w *world) {
			delete(w.a.announces, w.address)
			w.b.hold(w.address)
		}, EventStale, `on this node: .*; ` + command + byA, func(w *world, advised []string) { w.a.deletes(w, advised) }},
		"two machines": {func(w *world) { w.b.carries[w.address] = []string{vif} }, EventDuplicate,
			`on the node that does not hold the lease \S+, which is held by Node srv-1; ` + command,
			func(w *world, advised []string) { w.b.deletes(w, advised) }},
		"a machine that is no Node": {func(w *world) {
			w.a.drop(w.address)
			w.foreign.carries[w.address] = []string{vif}
			w.foreign.announces[w.address] = true
		}, EventForeign, `answered by (\S+), which is not a Node of the cluster; find the server with this hardware ` +
			`address .* and remove the address from it`, func(w *world, advised []string) {
			for _, m := range w.machines {
				if m.mac == advised[1] {
					m.drop(w.address)
				}
			}
			w.a.hold(w.address) // the announcer is not disturbed any more
		}},
		"the wrong interface": {func(w *world) {
			w.a.drop(w.address)
			w.a.carries[w.address] = []string{"bond0"}
		}, EventMisplaced, `set kube-vip's vip_interface, .* to (\S+) .* and restart kube-vip on this node`,
			func(w *world, advised []string) {
				w.a.hold(w.address)
				w.a.carries[w.address] = []string{advised[1]}
			}},
		"the wrong node": {func(w *world) {
			w.a.drop(w.address)
			w.b.carries[w.address] = []string{vif}
			w.b.announces[w.address] = true
			w.lease(w.address, announcer.Held, w.a.name)
		}, EventMisplaced, `on the node that answers; ` + command, func(w *world, advised []string) {
			w.b.deletes(w, advised)
			w.b.drop(w.address)
			w.a.hold(w.address)
		}},
		"the lease expired, kube-vip runs": {expired, EventUnguarded,
			`run kube-vip on the node that answers; `, kubeVIPRuns},
		"the lease expired, the address goes": {expired, EventUnguarded,
			`run it there and delete the address on this one: ` + command,
			func(w *world, advised []string) {
				w.a.deletes(w, advised)
				w.b.hold(w.address)
			}},
		"replies leave elsewhere": {func(w *world) { w.a.returnBy = "bond0" }, EventReturnPath,
			`instead of (\S+); make the gateway of the public network the node's default gateway, or route by source`,
			func(w *world, advised []string) { w.a.returnBy = advised[1] }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.run()()
				after(20 * time.Second)
				w.recorded()
				w.change(func() { test.state(w) })
				after(time.Minute)
				said := w.recorded()
				line := regexp.MustCompile("(?m)^Warning " + test.reason + " .*" + test.advice)
				advised := line.FindStringSubmatch(said)
				if advised == nil {
					t.Fatalf("events %q, want one that advises %s", said, test.advice)
				}
				w.change(func() { test.remedy(w, advised) })
				after(time.Minute)
				w.recorded()
				after(time.Hour)
				if said := w.recorded(); strings.Contains(said, "Warning") {
					t.Errorf("after the remedy there are the events %q", said)
				}
				w.expect("after the remedy", ReasonAnswered, "")
			})
		})
	}
}

// expired is kube-vip killed on srv-1, which no other node follows.
func expired(w *world) {
	delete(w.a.announces, w.address)
	w.lease(w.address, announcer.Expired, w.a.name)
}

// recorded are the events since the last call, a line for each.
func (w *world) recorded() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, m := range w.machines {
		all = append(all, m.recorded...)
		m.recorded = nil
	}
	return strings.Join(all, "\n")
}
