package reconcile_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// disappear makes the API answer with a status for every block by its ID, and, if both, leave the block of the Service
// out of the list too. The public network goes on listing it.
func (w *world) disappear(status int, both bool) {
	w.arm(pnapsim.Fault{Method: http.MethodGet, Path: blockPath, Action: pnapsim.FaultStatus, Status: status,
		Times: -1})
	if both {
		w.arm(pnapsim.Fault{Method: http.MethodGet, Path: blocksPath, Action: pnapsim.FaultOmit, Element: 1, Times: -1})
	}
}

// hiddenBlocks are the ways in which a Service has an address, with the number of blocks that are bought for it.
var hiddenBlocks = map[string]struct {
	options   []option
	change    func(*corev1.Service)
	purchases int
}{
	"dedicated": {nil, annotated(), 1},
	"retained":  {nil, annotated(contract.ServiceIPRetain, "true"), 1},
	"replaced":  {nil, annotated(contract.ServiceIPReplace, "true"), 1},
	"shared":    {nil, inPool(), 1},
	"brought":   {[]option{broughtBlock("", ofCluster())}, inBlock(broughtID), 0},
}

// TestAddressIsKeptWhileTheNetworkHasItsBlock: by its ID, and perhaps in the list, the block of a published Service
// seems to be gone. The network lists it, so that its address goes on working: it is not withdrawn, and nothing is
// bought or released in its place.
func TestAddressIsKeptWhileTheNetworkHasItsBlock(t *testing.T) {
	for name, kind := range hiddenBlocks {
		for what, test := range map[string]struct {
			status int
			both   bool
			want   string
		}{
			"only listed":                 {http.StatusNotFound, false, "BlockAssigned"},
			"neither listed nor readable": {http.StatusNotFound, true, "BlockInvisible"},
			"not listed, and forbidden":   {http.StatusForbidden, true, "BlockInvisible"},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind.options...)
				w.service("web", kind.change)
				w.settle("web")
				w.clock.Advance(5 * time.Minute)
				address := w.address("web")
				before := w.blocks()
				w.disappear(test.status, test.both)
				w.restart()
				for range 10 {
					w.drifted()
					_, _ = w.sync("web")
					w.keeps("web", address)
				}
				if reason := w.condition("web").Reason; reason != test.want {
					t.Errorf("the condition says %s, want %s", reason, test.want)
				}
				w.wantBlocks(before...)
				w.wantPurchases(kind.purchases)
				w.sim.Disarm()
				w.clock.Advance(time.Minute)
				w.settle("web")
				if reason := w.condition("web").Reason; reason != "BlockAssigned" {
					t.Errorf("afterwards the condition says %s", reason)
				}
				w.keeps("web", address)
			})
		}
	}
}

// keeps demands that everyone who reads the Service goes on with its address.
func (w *world) keeps(name, address string) {
	w.t.Helper()
	service := w.get(name)
	annotation, spec, statuses := w.announces(name)
	if annotation != address || spec != address || statuses != 1 ||
		service.Annotations[contract.ServiceIPBlockAssigned] != "true" {
		w.t.Errorf("%s is announced as %q and %q, with %d addresses in the status and %s=%q", address, annotation, spec,
			statuses, contract.ServiceIPBlockAssigned, service.Annotations[contract.ServiceIPBlockAssigned])
	}
}

// TestReleaseWaitsForABlockThatTheNetworkHas: a Service that is deleted while its block seems to be gone is released
// when the block can be read again, and not before.
func TestReleaseWaitsForABlockThatTheNetworkHas(t *testing.T) {
	for name, kind := range hiddenBlocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind.options...)
			begin := w.blocks()
			w.service("web", kind.change)
			w.settle("web")
			w.clock.Advance(5 * time.Minute)
			before := w.blocks()
			w.disappear(http.StatusNotFound, true)
			w.delete("web")
			for range 10 {
				w.drifted()
				if done, _ := w.sync("web"); done {
					t.Fatal("the Service is released")
				}
				w.clock.Advance(time.Minute)
			}
			w.wantBlocks(before...)
			if reason := w.condition("web").Reason; reason != "BlockInvisible" {
				t.Errorf("the condition says %s", reason)
			}
			w.sim.Disarm()
			w.settle("web")
			if name == "retained" {
				begin = []string{"203.0.113.8/29 unassigned"}
			}
			w.wantBlocks(begin...)
			w.wantPurchases(kind.purchases)
		})
	}
}

// syncFor syncs a Service for a while, as often as it asks for it.
func (w *world) syncFor(name string, d time.Duration) {
	w.t.Helper()
	for start := w.clock.Now(); w.clock.Now().Sub(start) < d; {
		_, err := w.sync(name)
		w.clock.Advance(w.pauseAfter(err))
	}
}

// TestNoSecondBlockWhileTheIndexNamesTheFirst: a block was bought, the list lags and its ID does not answer. Only the
// index of the tag of the cluster shows that it exists.
func TestNoSecondBlockWhileTheIndexNamesTheFirst(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){"dedicated": annotated(), "shared": inPool()} {
		for answer, action := range map[string]string{"answered": "", "unanswered": pnapsim.FaultLost} {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(time.Hour) }))
				if action != "" {
					w.arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: action})
				}
				w.disappear(http.StatusNotFound, false)
				w.service("web", change)
				w.syncFor("web", 10*time.Minute)
				w.wantPurchases(1)
				w.sim.Disarm()
				w.settle("web")
				w.wantPurchases(1)
			})
		}
	}
}

// TestNoSecondBlockAfterAnAnswerThatWasFoundLater: a purchase had no answer, and its block was found by its tags. Then
// the API shows these no more while the list still lags: the record names the block, so it is waited for.
func TestNoSecondBlockAfterAnAnswerThatWasFoundLater(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){"dedicated": annotated(), "shared": inPool()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(time.Hour) }))
			w.service("first", annotated())
			w.settle("first") // the tags exist then, so that the purchase is not refused
			w.arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: pnapsim.FaultLost})
			w.service("web", change)
			waits := func(b network.Block) bool { return b.Status != network.Assigned }
			for len(w.accountBlocks()) < 2 || slices.ContainsFunc(w.accountBlocks(), waits) {
				_, err := w.sync("web")
				w.clock.Advance(w.pauseAfter(err))
			}
			w.clock.Advance(5 * time.Minute) // so that nothing counts which is only remembered
			for _, path := range []string{blocksPath, blockPath} {
				w.arm(pnapsim.Fault{Method: http.MethodGet, Path: path, Action: pnapsim.FaultDropField, Field: "tags",
					Element: -1, Times: -1})
			}
			w.arm(pnapsim.Fault{Method: http.MethodGet, Path: "/tag-manager/v1/tags", Action: pnapsim.FaultDropField,
				Field: "resourceAssignments", Element: -1, Times: -1})
			w.syncFor("web", 10*time.Minute)
			if name == "shared" {
				w.service("next", change) // which needs an address of the same block
				w.syncFor("next", 10*time.Minute)
			}
			w.wantPurchases(2)
			w.sim.Disarm()
			w.settle("web")
			w.wantPurchases(2)
		})
	}
}
