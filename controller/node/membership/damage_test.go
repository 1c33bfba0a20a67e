package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// writeConfigMap creates or changes a ConfigMap in kube-system as a person does.
func (w *world) writeConfigMap(name string, change func(*corev1.ConfigMap)) {
	w.t.Helper()
	configMaps := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object, err := configMaps.Get(w.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		change(object)
		_, err = configMaps.Update(w.t.Context(), object, metav1.UpdateOptions{})
	} else {
		object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}}
		change(object)
		_, err = configMaps.Create(w.t.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) writePurchase(value string) {
	w.t.Helper()
	w.writeConfigMap(purchase.NodesName, func(c *corev1.ConfigMap) {
		c.Annotations = map[string]string{contract.ServiceIPPurchase: value}
	})
}

// A recorded purchase delays nodes no longer than one of now, whatever its time.
func TestPurchaseOfAWrongClock(t *testing.T) {
	for _, at := range []string{"2099-01-01T00:00:00Z", "1970-01-01T00:00:01Z"} {
		for _, block := range []string{"", surplusA} {
			t.Run(at+" "+block, func(t *testing.T) {
				t.Parallel()
				w := newWorldOf(t, lagging(0), seedOf(1, "", ownedBy), buys)
				w.writePurchase(fmt.Sprintf(`{"nonce":"0011223344556677","time":%q,"blockID":%q}`, at, block))
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

// While it is not known whether a block was bought for the nodes, none is bought; the Node says what to repair.
func TestUnreadablePurchaseIsReportedOnTheNode(t *testing.T) {
	w := newWorldOf(t, lagging(0), seedOf(1, "", ownedBy), buys)
	w.writePurchase("soon")
	w.node(0, true)
	w.start()
	w.run(10 * time.Minute)
	w.expectPurchases(0)
	if events := strings.Join(w.takeEvents(), "\n"); !strings.Contains(events, ReasonNodeBlockUnavailable) ||
		!strings.Contains(events, "kube-system/"+purchase.NodesName) ||
		!strings.Contains(events, "remove the annotation") {
		t.Errorf("events %q", events)
	}
	w.writePurchase("")
	w.run(10 * time.Minute)
	w.expectPurchases(1)
	w.expectMember(0, "203.0.113.2 assigned")

	w.writePurchase("soon")
	w.selectNode(0, false)
	w.run(time.Hour)
	if events := strings.Join(w.takeEvents(), "\n"); !strings.Contains(events, ReasonRecordUnreadable) {
		t.Errorf("events %q", events)
	}
	w.writePurchase("")
	w.run(time.Hour)
	w.expectBlocks()
}

// A record of addresses that cannot be read delays only servers that need it, and says so on their Nodes.
func TestUnreadableNodeLedgerIsReportedOnTheNode(t *testing.T) {
	w := newWorldOf(t, lagging(0), seedOf(2, "", ownedBy), buys)
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
		!strings.Contains(events, "IPBlock "+v1beta1.NamePrefix+w.recorded()) {
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
