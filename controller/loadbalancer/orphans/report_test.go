package orphans_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// reported returns the stored report.
func (w *world) reported() contract.BlockReport {
	w.t.Helper()
	object, err := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(w.t.Context(), contract.BlockReportName,
		metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	report, err := contract.ParseBlockReport(object.Data[contract.BlockReportKey])
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// The report holds each block: what it was bought for, and whether it is used. What is held against a block
// is reported once a second pass has confirmed it, and a block of another cluster never.
func TestBlocksAreReported(t *testing.T) {
	const used, kept, pool, foreign, brought, named = "60473c2509268bc77fd06d41", "60473c2509268bc77fd06d42",
		"60473c2509268bc77fd06d43",
		"60473c2509268bc77fd06d44", "60473c2509268bc77fd06d45", "60473c2509268bc77fd06d46"
	retained := ours(contract.TagService, "shop_kept")
	retained[contract.TagRetain] = contract.TagTrue
	w := newWorld(t,
		block(blockID, "203.0.113.0/29", "", ours(contract.TagService, "shop_gone")),
		block(used, "203.0.113.8/29", "public", ours(contract.TagService, "shop_web")),
		block(kept, "203.0.113.16/29", "", retained),
		block(pool, "203.0.113.24/29", "public", ours(contract.TagPool, contract.PoolDefault)),
		block(foreign, "203.0.113.32/29", "", map[string]string{contract.TagUsage: contract.TagUsageAuto,
			contract.TagCluster: otherCluster}),
		block(brought, "203.0.113.40/29", "", map[string]string{contract.TagCluster: clusterUID}),
		block(named, "203.0.113.48/29", "", nil),
		func(_ *pnapsim.Config, _ *pnapsim.AccountSeed, c *orphans.Config) {
			c.MaxBlocks = 7
		})
	w.bring(named)
	w.service("web", false)
	standings := func() map[string]string {
		t.Helper()
		if _, err := w.collector.Look(testlog.Context(t)); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, b := range w.reported().Blocks {
			found[b.ID] = b.Standing + " " + b.Purpose + " " + b.Name
		}
		return found
	}
	want := map[string]string{
		blockID: "checking service shop_gone", used: "in-use service shop_web", kept: "retained service shop_kept",
		pool:  "checking pool default",
		named: "brought  ",
	}
	if diff := cmp.Diff(want, standings()); diff != "" {
		t.Error(diff)
	}
	seen := w.clock.Now()
	w.clock.Advance(time.Minute)
	want[blockID] = "orphan service shop_gone"
	want[pool] = "empty pool default"
	if diff := cmp.Diff(want, standings()); diff != "" {
		t.Error(diff)
	}
	last := w.reported()
	blocks := last.Blocks
	last.Blocks = nil
	if diff := cmp.Diff(contract.BlockReport{Looked: w.clock.Now(), NetworkID: networkID, MaxBlocks: 7}, last,
		cmpopts.EquateApproxTime(time.Second)); diff != "" {
		t.Error(diff)
	}
	for _, b := range blocks {
		if suspect := b.ID == blockID || b.ID == pool; suspect != (b.Since != nil) || suspect &&
			b.Since.Sub(seen).Abs() > time.Second {
			t.Errorf("%s is unused since %v", b.CIDR, b.Since)
		}
		if b.Location != "ASH" || !b.CIDR.IsValid() || (b.AssignedTo == networkID) != (b.ID == used || b.ID == pool) {
			t.Errorf("block %+v", b)
		}
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
