package reconcile

import (
	"sync"

	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// The kinds of repairs that are counted.
const (
	// repairReassigned: a block was taken off the network outside the cluster and is assigned again.
	repairReassigned = "reassigned"
	// repairReplaced: a block was deleted outside the cluster and another one was bought.
	repairReplaced = "replaced"
	// repairRepublished: someone changed the published address on the Service.
	repairRepublished = "republished"
)

// Metrics count what becomes of blocks and addresses.
type Metrics struct {
	blocks    *metrics.GaugeVec
	addresses *metrics.GaugeVec
	repairs   *metrics.CounterVec

	mu sync.Mutex
	// states and uses are the last counts of each public network.
	states, uses map[string]map[string]int
}

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	return &Metrics{
		states: map[string]map[string]int{}, uses: map[string]map[string]int{},
		blocks: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_ip_blocks", StabilityLevel: metrics.ALPHA,
			Help: "IP blocks that were bought for this cluster, by the state that the API reports.",
		}, []string{"state"}),
		addresses: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_pool_addresses", StabilityLevel: metrics.ALPHA,
			Help: "Addresses of shared and brought IP blocks: used by a Service, quarantined after their release, or " +
				"free.",
		}, []string{"use"}),
		repairs: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_drift_repairs_total", StabilityLevel: metrics.ALPHA,
			Help: "Changes made outside of the cluster, or by hand, that were repaired, by kind.",
		}, []string{"kind"}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable {
	return []metrics.Registerable{m.blocks, m.addresses, m.repairs}
}

func (m *Metrics) repaired(kind string) { m.repairs.WithLabelValues(kind).Inc() }

// observe exports what one reading of the account showed of the blocks of one public network.
func (m *Metrics) observe(o plan.Observed) {
	states := map[string]int{}
	for _, block := range o.Blocks {
		if network.OfCluster(block, o.Owner.Cluster) {
			states[string(block.Status)]++
		}
	}
	uses := map[string]int{"used": 0, "quarantined": 0, "free": 0}
	for _, l := range o.Ledgers {
		if !l.HoldsForServers() {
			used, quarantined, free := l.Count()
			uses["used"] += used
			uses["quarantined"] += quarantined
			if _, untouchable := ipblock.Untouchable(o.Block(l.BlockID)); !untouchable || !o.Listed(l.BlockID) {
				uses["free"] += free
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[o.Network.Name] = states
	m.uses[o.Network.Name] = uses
	m.blocks.Reset()
	for state, count := range sum(m.states) {
		m.blocks.WithLabelValues(state).Set(float64(count))
	}
	for use, count := range sum(m.uses) {
		m.addresses.WithLabelValues(use).Set(float64(count))
	}
}

// sum adds the counts of all public networks.
func sum(counts map[string]map[string]int) map[string]int {
	total := map[string]int{}
	for _, of := range counts {
		for what, count := range of {
			total[what] += count
		}
	}
	return total
}
