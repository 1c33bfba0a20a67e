package membership

import (
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// A recorded purchase delays nodes no longer than one of now, whatever its time.
func TestPurchaseOfAWrongClock(t *testing.T) {
	for _, at := range []time.Time{time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1, 0)} {
		for _, block := range []string{"", surplusA} {
			t.Run(at.String()+" "+block, func(t *testing.T) {
				t.Parallel()
				w := newWorldOf(t, lagging(0), seedOf(1, "", ownedBy), nil)
				w.writePurchase(at, block)
				w.node(0, true)
				w.start()
				begun := w.sim.Clock().Now()
				for w.purchases() == 0 && w.sim.Clock().Now().Sub(begun) < time.Hour {
					again, _ := w.sync()
					w.sim.Advance(again)
				}
				took := w.sim.Clock().Now().Sub(begun)
				t.Logf("figure wrong_clock_node_block_delay %.0f s", took.Seconds())
				if took > 90*time.Second {
					t.Errorf("the node block was bought after %s", took)
				}
				w.run(20 * time.Minute)
				w.expectPurchases(1)
				w.selectNode(0, false)
				w.run(time.Hour)
				w.expectBlocks()
			})
		}
	}
}

// A record of addresses that cannot be read delays only servers that need it, and says so on their Nodes.
func TestUnreadableNodeLedgerIsReportedOnTheNode(t *testing.T) {
	w := newWorldOf(t, lagging(0), seedOf(2, "", ownedBy), nil)
	w.node(0, true)
	w.node(1, false)
	w.start()
	w.run(10 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	var before string
	w.editLedger(w.recorded(), func(s *v1beta1.IPBlockStatus) {
		before = s.CIDR
		s.CIDR = ""
	})
	w.takeEvents()
	w.selectNode(1, true)
	w.run(10 * time.Minute)
	w.expectMember(1, "none")
	if events := strings.Join(w.takeEvents(), "\n"); !strings.Contains(events, ReasonNodeBlockUnavailable) ||
		!strings.Contains(events, "IPBlock "+w.objectOf(w.recorded())) {
		t.Errorf("events %q", events)
	}
	w.selectNode(0, false)
	w.run(30 * time.Minute)
	w.expectMember(0, "none")
	w.editLedger(w.recorded(), func(s *v1beta1.IPBlockStatus) { s.CIDR = before })
	w.run(10 * time.Minute)
	w.expectMember(1, "203.0.113.3 assigned")
	w.expectPurchases(1)
}
