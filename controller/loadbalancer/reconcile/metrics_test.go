package reconcile

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// TestUntouchableAddressesAreNotFree: of a block that is divided no address can be given, and its parts, whatever their
// tags, were not bought.
func TestUntouchableAddressesAreNotFree(t *testing.T) {
	m := NewMetrics()
	registry := metrics.NewKubeRegistry()
	for _, each := range m.All() {
		registry.MustRegister(each)
	}
	o := plan.Observed{Owner: network.Owner{Cluster: "c1"}}
	for i, b := range []network.Block{
		{ID: "a", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Status: network.Assigned},
		{ID: "b", CIDR: netip.MustParsePrefix("203.0.113.16/29"), Status: network.Subnetted},
		{ID: "c", CIDR: netip.MustParsePrefix("203.0.113.16/30"), Status: network.Unassigned, Part: true},
	} {
		b.Tags = network.PoolOwner("c1", v1beta1.DefaultNetwork).Tags()
		o.Blocks = append(o.Blocks, b)
		if i < 2 {
			o.Ledgers = append(o.Ledgers, ipblock.NewLedger(b.ID, b.CIDR))
		}
	}
	m.observe(o)
	want := "# HELP phoenixnap_ip_blocks [ALPHA] IP blocks that were bought for this cluster, by the state that the " +
		"API reports.\n" + `# TYPE phoenixnap_ip_blocks gauge
phoenixnap_ip_blocks{state="assigned"} 1
phoenixnap_ip_blocks{state="subnetted"} 1
` + "# HELP phoenixnap_pool_addresses [ALPHA] Addresses of shared and brought IP blocks: used by a Service, " +
		"quarantined after their release, or free.\n" + `# TYPE phoenixnap_pool_addresses gauge
phoenixnap_pool_addresses{use="free"} 5
phoenixnap_pool_addresses{use="quarantined"} 0
phoenixnap_pool_addresses{use="used"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "phoenixnap_ip_blocks",
		"phoenixnap_pool_addresses"); err != nil {
		t.Error(err)
	}
}
