package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// editConfigMap changes a ConfigMap in kube-system as a person does.
func (w *world) editConfigMap(name string, change func(*corev1.ConfigMap)) {
	w.t.Helper()
	configMaps := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object, err := configMaps.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	object = object.DeepCopy()
	change(object)
	if _, err := configMaps.Update(w.ctx, object, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// damaged are the ways in which a ledger becomes unreadable.
func damaged() map[string]func(*corev1.ConfigMap) {
	return map[string]func(*corev1.ConfigMap){
		"no JSON": func(c *corev1.ConfigMap) { c.Data["ledger.json"] = "{" },
		"no data": func(c *corev1.ConfigMap) { c.Data = nil },
		"of another block": func(c *corev1.ConfigMap) {
			c.Data["ledger.json"] = `{"blockID":"b","cidr":"203.0.113.8/29"}`
		},
		"of a later version": func(c *corev1.ConfigMap) {
			c.Data["ledger.json"] = strings.Replace(c.Data["ledger.json"], "{", `{"newField": 1,`, 1)
		},
		"no JSON, no label": func(c *corev1.ConfigMap) {
			c.Data["ledger.json"] = "{"
			c.Labels = nil
		},
	}
}

// TestUnreadableLedgerStopsNoOther: one record of addresses that cannot be read concerns its own block only. Its
// Service keeps its address and says what is wrong; others, dedicated and shared ones, are served and released; the
// block is neither used nor released until the record is readable again.
func TestUnreadableLedgerStopsNoOther(t *testing.T) {
	for how, damage := range damaged() {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			address := w.address("one")
			name := allocation.NamePrefix + w.blockID()
			w.service("own")
			w.settle("own")
			w.eventReasons()
			var before corev1.ConfigMap
			w.editConfigMap(name, func(c *corev1.ConfigMap) {
				c.DeepCopyInto(&before)
				damage(c)
			})
			w.restart()
			w.clock.Advance(time.Minute)

			took := w.settle("own")
			w.delete("own")
			took += w.settle("own")
			w.service("next")
			took += w.settle("next")
			w.service("two", inPool())
			took += w.settle("two")
			t.Logf("figure unreadable_ledger_delays_others %.1f s", took.Seconds())
			if err := w.refused("one", 10*time.Minute); !strings.Contains(err.Error(), name) {
				t.Errorf("refusal %q does not name the ConfigMap", err)
			}
			if got := w.address("one"); got != address {
				t.Errorf("address %s became %q", address, got)
			}
			condition := w.condition("one")
			if condition.Reason != string(plan.LedgerUnreadable) || !strings.Contains(condition.Message, name) ||
				!strings.Contains(condition.Message, "restore it") {
				t.Errorf("condition %+v", condition)
			}
			w.wantAddressesDiffer("one", "two")
			w.passes(5 * time.Minute)
			if events := w.eventsOf("RecordUnreadable"); len(events) != 2 || !strings.Contains(events[0], name) {
				t.Errorf("events %q, want one on the Service and one on the Namespace", events)
			}

			w.delete("one")
			w.settle("one")
			w.delete("two")
			w.settle("two")
			w.passes(30 * time.Minute)
			w.wantBlocks("203.0.113.8/29 assigned", "203.0.113.24/29 assigned")
			w.editConfigMap(name, func(c *corev1.ConfigMap) {
				c.Data = before.Data
				c.Labels = before.Labels
			})
			w.passes(5 * time.Minute)
			w.wantBlocks("203.0.113.24/29 assigned")
			w.delete("next")
			w.settle("next")
			w.wantBlocks()
		})
	}
}

// wantAddressesDiffer demands that each of the Services has an address of its own; unlike wantAddressesOnce it reads no
// ledgers.
func (w *world) wantAddressesDiffer(names ...string) {
	w.t.Helper()
	seen := map[string]string{}
	for _, name := range names {
		address := w.address(name)
		if other, twice := seen[address]; twice || address == "" {
			w.t.Errorf("Service %s has address %q, as has Service %q", name, address, other)
		}
		seen[address] = name
	}
}

// TestUnreadableLedgerOfABroughtBlock: the same for a block that Services name.
func TestUnreadableLedgerOfABroughtBlock(t *testing.T) {
	w := newWorld(t, broughtBlock("", ofCluster()))
	w.service("one", inBlock(broughtID))
	w.settle("one")
	address := w.address("one")
	var data map[string]string
	w.editConfigMap(allocation.NamePrefix+broughtID, func(c *corev1.ConfigMap) {
		data = c.Data
		c.Data = map[string]string{"ledger.json": "[]"}
	})
	w.clock.Advance(time.Minute)
	w.service("two", inBlock(broughtID))
	w.service("own")
	w.settle("own")
	for _, name := range []string{"one", "two"} {
		if err := w.refused(name, 10*time.Minute); !strings.Contains(err.Error(), allocation.NamePrefix+broughtID) {
			t.Errorf("refusal %q of Service %s does not name the ConfigMap", err, name)
		}
	}
	if got := w.address("one"); got != address || w.address("two") != "" {
		t.Errorf("addresses %q, want %s, and %q, want none", got, address, w.address("two"))
	}
	w.delete("one")
	w.settle("one")
	w.passes(15 * time.Minute)
	w.wantBlocks("203.0.113.64/29 assigned", "203.0.113.8/29 assigned")
	w.editConfigMap(allocation.NamePrefix+broughtID, func(c *corev1.ConfigMap) { c.Data = data })
	w.clock.Advance(time.Minute)
	w.settle("two")
	w.delete("two")
	w.settle("two")
	w.sweep()
	w.wantBlocks("203.0.113.64/29 unassigned", "203.0.113.8/29 assigned")
}

// TestLostLabelIsRestored: a ledger that lost its label is found by its name; no Service waits for it, and its block is
// released with its last Service.
func TestLostLabelIsRestored(t *testing.T) {
	unlabel := func(c *corev1.ConfigMap) { c.Labels = nil }
	t.Run("shared", func(t *testing.T) {
		w := newWorld(t)
		w.service("one", inPool())
		w.settle("one")
		name := allocation.NamePrefix + w.blockID()
		w.editConfigMap(name, unlabel)
		w.clock.Advance(time.Minute)
		w.service("two", inPool())
		took := w.settle("two")
		t.Logf("figure unlabelled_ledger_delays_next %.1f s", took.Seconds())
		if took > 5*time.Second {
			t.Errorf("the next Service waited %s", took)
		}
		w.wantPurchases(1)
		w.wantAddressesOnce("one", "two")
		if got := w.configMap(name).Labels[allocation.Label]; got != "true" {
			t.Errorf("the label is %q", got)
		}
		if events := w.eventsOf("RecordRelabelled"); len(events) != 1 || !strings.Contains(events[0], name) {
			t.Errorf("events %q, want one that names %s", events, name)
		}
		w.editConfigMap(name, unlabel)
		w.clock.Advance(time.Minute)
		w.delete("one")
		w.settle("one")
		w.delete("two")
		w.settle("two")
		w.sweep()
		w.wantBlocks()
		if w.configMap(name) != nil {
			t.Errorf("ConfigMap %s is left", name)
		}
	})
	t.Run("the list lacks the block", func(t *testing.T) {
		w := newWorld(t, slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(10 * time.Minute) }))
		w.service("one", inPool())
		w.settle("one")
		w.editConfigMap(allocation.NamePrefix+w.blockID(), unlabel)
		w.restart()
		w.service("two", inPool())
		if took := w.settle("two"); took > 5*time.Second {
			t.Errorf("the next Service waited %s", took)
		}
		w.wantPurchases(1)
		w.wantAddressesOnce("one", "two")
	})
	t.Run("no Service left", func(t *testing.T) {
		w := newWorld(t)
		w.service("one", inPool())
		w.settle("one")
		w.editConfigMap(allocation.NamePrefix+w.blockID(), unlabel)
		if err := w.tracker.Delete(servicesResource, "shop", "one"); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.sweep()
		w.wantBlocks()
	})
	t.Run("brought", func(t *testing.T) {
		w := newWorld(t, broughtBlock("", ofCluster()))
		w.service("one", inBlock(broughtID))
		w.settle("one")
		w.editConfigMap(allocation.NamePrefix+broughtID, unlabel)
		w.clock.Advance(time.Minute)
		w.service("two", inBlock(broughtID))
		w.settle("two")
		w.wantAddressesOnce("one", "two")
		w.editConfigMap(allocation.NamePrefix+broughtID, unlabel)
		w.clock.Advance(time.Minute)
		for _, name := range []string{"one", "two"} {
			w.delete(name)
			w.settle(name)
		}
		w.wantBlocks("203.0.113.64/29 unassigned")
	})
}

// TestUnreadablePoolPurchaseStopsOnlyPurchases: while it is not known whether a block was bought for the pool, none is
// bought for it. Everything else goes on.
func TestUnreadablePoolPurchaseStopsOnlyPurchases(t *testing.T) {
	for _, garbage := range []string{"soon", "{}", `{"nonce":"n"}`, "\x00"} {
		w := newWorld(t)
		w.service("one", inPool())
		w.settle("one")
		record := purchase.PoolName(contract.PoolDefault)
		w.editConfigMap(record, func(c *corev1.ConfigMap) { c.Annotations[contract.ServiceIPPurchase] = garbage })
		w.clock.Advance(time.Minute)
		w.service("own")
		w.settle("own")
		for _, name := range []string{"two", "three", "four", "five"} {
			w.service(name, inPool())
			w.settle(name)
		}
		w.service("six", inPool())
		err := w.refused("six", 5*time.Minute)
		if c := w.condition("six"); c.Reason != string(plan.PurchaseRecordUnreadable) ||
			!strings.Contains(err.Error(), record) || !strings.Contains(err.Error(), "remove the annotation") {
			t.Errorf("refusal %q, condition %+v", err, c)
		}
		w.wantPurchases(2)
		w.delete("six")
		w.settle("six")
		for _, name := range []string{"one", "two", "three", "four", "five"} {
			w.delete(name)
			w.settle(name)
		}
		w.sweep()
		w.wantBlocks("203.0.113.16/29 assigned")
	}
}

// TestNoAddressWithoutItsRecord: while the ledger cannot be written, for it was changed meanwhile or the API server
// fails, no address of it is published.
func TestNoAddressWithoutItsRecord(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, failure := range map[string]error{
		"changed meanwhile":    apierrors.NewConflict(resource, "ledger", errors.New("the object has been modified")),
		"the API server fails": apierrors.NewInternalError(errors.New("etcd has no leader")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			fails := true
			w.kube.PrependReactor("update", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
				return fails, nil, failure
			})
			w.service("two", inPool())
			for range 20 {
				if done, _ := w.sync("two"); done || w.address("two") != "" {
					t.Fatalf("done is %t, the address is %q", done, w.address("two"))
				}
				w.clock.Advance(time.Second)
			}
			fails = false
			w.settle("two")
			w.wantAddressesOnce("one", "two")
		})
	}
}
