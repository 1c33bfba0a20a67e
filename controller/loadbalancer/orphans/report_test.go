package orphans_test

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// orphaned is the condition Orphaned of the IPBlock of a block: its reason, and since when; false while there is none.
func (w *world) orphaned(name string) (reason string, since time.Time, found bool) {
	w.t.Helper()
	object, err := w.objects.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionOrphaned)
	if c == nil {
		return "", time.Time{}, false
	}
	return c.Reason, c.LastTransitionTime.Time, true
}

// TestASharedBlockWithoutUseSaysSo: once a second pass has confirmed it, and until an address of it is allocated.
func TestASharedBlockWithoutUseSaysSo(t *testing.T) {
	w := newWorld(t, block(blockID, "203.0.113.24/29", "public", ours(contract.TagPool, v1beta1.DefaultNetwork)))
	_, err := w.ledgers.Save(t.Context(), ipblock.NewLedger(blockID, netip.MustParsePrefix("203.0.113.24/29")))
	if err != nil {
		t.Fatal(err)
	}
	name := v1beta1.NamePrefix + blockID
	if err := w.look(); err != nil {
		t.Fatal(err)
	}
	if reason, _, found := w.orphaned(name); found {
		t.Errorf("after one look it is %s", reason)
	}
	confirmed := w.clock.Now()
	w.pass(10 * time.Minute)
	reason, since, _ := w.orphaned(name)
	if reason != v1beta1.OrphanedNotUsed || since.Sub(confirmed).Abs() > time.Second {
		t.Errorf("it is %q since %s, want it since %s", reason, since, confirmed)
	}
	if n := w.count(contract.OrphanedIPBlock, blockID, "none of its addresses is held"); n != 1 {
		t.Errorf("%d events; heard %q", n, w.heard)
	}
	l, err := w.ledgers.Get(t.Context(), blockID)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err = l.Take(ipblock.Holder{Namespace: "shop", Name: "web", UID: "uid-web"}, ipblock.Ask{Now: w.clock.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ledgers.Save(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	w.pass(2 * time.Minute)
	if reason, _, found := w.orphaned(name); found {
		t.Errorf("an address is allocated, and it is %s", reason)
	}
}

// The metrics count blocks of this cluster only, although the account holds others.
func TestMetricsCountBlocksOfTheCluster(t *testing.T) {
	retained := ours(contract.TagService, "shop_kept")
	retained[contract.TagRetain] = contract.TagTrue
	foreign := maps.Clone(retained)
	foreign[contract.TagCluster] = otherCluster
	w := newWorld(t, block(blockID, "203.0.113.0/29", "", retained),
		block("60473c2509268bc77fd06d41", "203.0.113.8/29", "", foreign))
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(w.config.Metrics.All()...)
	w.pass(10 * time.Minute)
	counts := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				counts[label.GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{"empty": 0, "leftover": 0, "orphan": 0, "retained": 1, "unclear": 0}
	if !maps.Equal(counts, want) {
		t.Errorf("blocks by standing: %v, want %v", counts, want)
	}
}

// TestABlockOfANetworkThatIsNotServed gets its object in the network to which it is assigned, once that is served.
func TestABlockOfANetworkThatIsNotServed(t *testing.T) {
	served := []network.Named{{Name: v1beta1.DefaultNetwork, ID: networkID}}
	w := newWorld(t, block(blockID, "203.0.113.24/29", "other", ours(contract.TagService, "shop_gone")),
		func(_ *pnapsim.Config, _ *pnapsim.AccountSeed, c *orphans.Config) {
			c.Networks = func() []network.Named { return served }
		})
	w.pass(10 * time.Minute)
	name := v1beta1.NamePrefix + blockID
	if object, err := w.objects.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		t.Errorf("the object is of network %s", object.Spec.Attachment.Name)
	}
	served = append(served, network.Named{Name: "west", ID: otherNetwork})
	w.pass(10 * time.Minute)
	object, err := w.objects.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || object.Spec.Attachment.Name != "west" {
		t.Errorf("%+v, %v", object, err)
	}
}
