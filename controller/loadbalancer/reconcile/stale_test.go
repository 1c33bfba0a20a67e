package reconcile_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// eventsOf returns the events of a reason since the last call.
func (w *world) eventsOf(reason string) (found []string) {
	for {
		select {
		case event := <-w.events.Events:
			if strings.Contains(event, " "+reason+" ") {
				found = append(found, event)
			}
		default:
			return found
		}
	}
}

// passes has the drift pass run for a while.
func (w *world) passes(during time.Duration) {
	for begun := w.clock.Now(); w.clock.Now().Sub(begun) < during; w.clock.Advance(15 * time.Second) {
		w.drifted()
	}
}

// TestStaleAddressIsReported: an address of the pool that was released and still answers is reported once, on the
// Service if it exists, else on the Node that answers; it is not given to others meanwhile, and at once when it is
// silent.
func TestStaleAddressIsReported(t *testing.T) {
	const forgotten = "the Service went without its finalizer"
	for how, leave := range map[string]func(*world){
		"the Service is gone": func(w *world) { w.delete("web") },
		"the Service lives on": func(w *world) {
			w.edit("web",
				func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		},
		forgotten: func(w *world) { _ = w.tracker.Delete(servicesResource, "shop", "web") },
	} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, configured(func(c *reconcile.Config) { c.Announcer = contract.AnnouncerKubeVIP }))
			w.report("", "")
			w.service("other", inPool())
			w.settle("other") // keeps the block in use
			w.service("web", inPool())
			w.settle("web")
			address := w.address("web")
			w.report(address, contract.AddressAnswered)
			w.eventsOf("StaleAddress")
			w.passes(2 * time.Minute)
			if events := w.eventsOf("StaleAddress"); len(events) != 0 {
				t.Errorf("events about an address in use: %q", events)
			}
			leave(w)
			if how != forgotten {
				w.settle("web")
			}
			w.passes(3 * time.Minute)
			if events := w.eventsOf("StaleAddress"); len(events) != 1 || !strings.Contains(events[0], address) ||
				!strings.Contains(events[0], "node-1") {
				t.Errorf("events %q, want one that names %s and node-1", events, address)
			}
			w.service("wants", inPool(),
				func(s *corev1.Service) { s.Annotations[contract.ServiceRequestedIP] = address })
			for range 30 {
				_, err := w.sync("wants")
				w.clock.Advance(min(w.pauseAfter(err), 3*time.Second)) // it is asked more often than it wants to be
			}
			if got := w.address("wants"); got != "" {
				t.Errorf("%s, which answers still, was given to another", got)
			}
			w.report(address, contract.AddressSilent)
			w.settle("wants")
			if got := w.address("wants"); got != address {
				t.Errorf("after it fell silent the other has %s, want %s", got, address)
			}
		})
	}
}

// TestStaleAddressOfARetainedBlock: a block that outlives its Service keeps its address for the Service's name; that it
// still answers is reported.
func TestStaleAddressOfARetainedBlock(t *testing.T) {
	w := newWorld(t)
	w.report("", "")
	w.service("web", annotated(contract.ServiceIPRetain, "true"))
	w.settle("web")
	address := w.address("web")
	w.delete("web")
	w.settle("web")
	w.report(address, contract.AddressAnswered)
	w.eventsOf("StaleAddress")
	w.passes(3 * time.Minute)
	if events := w.eventsOf("StaleAddress"); len(events) != 1 || !strings.Contains(events[0], address) {
		t.Errorf("events %q, want one that names %s", events, address)
	}
	w.report("198.51.100.7", contract.AddressAnswered)
	w.passes(3 * time.Minute)
	if events := w.eventsOf("StaleAddress"); len(events) != 0 {
		t.Errorf("events about an address that is none of ours: %q", events)
	}
}
