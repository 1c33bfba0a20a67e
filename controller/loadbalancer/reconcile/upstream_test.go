package reconcile_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Each test here is named after a fault of phoenixnap/k8s-cloud-provider-bmc v1 and proves that it is
// not there any more.

const (
	assignPath   = "/networks/v1/public-networks/*/ip-blocks"
	unassignPath = "/networks/v1/public-networks/*/ip-blocks/*"
	blocksPath   = "/ips/v1/ip-blocks"
	blockPath    = "/ips/v1/ip-blocks/*"
)

func ours(service string) map[string]string {
	return map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
		contract.TagService: "shop_" + service}
}

func withBlocks(seeds ...pnapsim.BlockSeed) option {
	return func(_ *pnapsim.Config, account *pnapsim.AccountSeed, _ *reconcile.Config) {
		account.Blocks = append(account.Blocks, seeds...)
	}
}

func configured(change func(*reconcile.Config)) option {
	return func(_ *pnapsim.Config, _ *pnapsim.AccountSeed, config *reconcile.Config) { change(config) }
}

func slow(change func(*pnapsim.Latency)) option {
	return func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
		latency := pnapsim.DefaultLatency()
		change(&latency)
		config.Latency = &latency
	}
}

//proves:known-bugs/empty-ip
func TestStatusNeverHasAnEmptyIP(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	for range 100 {
		done, err := w.sync("web")
		for _, ingress := range w.get("web").Status.LoadBalancer.Ingress {
			if ingress.IP == "" {
				t.Fatalf("the status has an ingress without an address (sync said %v)", err)
			}
		}
		if done {
			return
		}
		w.clock.Advance(w.pauseAfter(err))
	}
	t.Error("the Service never got its status")
}

//proves:known-bugs/waiting-backs-off
//proves:known-bugs/disagreeing-views
func TestSlowAssignmentIsWaitedForWithoutBackOff(t *testing.T) {
	for _, from := range []string{"assigning", "assigned"} {
		t.Run("resource reported from "+from, func(t *testing.T) {
			w := newWorld(t, slow(func(l *pnapsim.Latency) { l.Assign = pnapsim.Duration(10 * time.Minute) }),
				func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
					config.Switches.AssignedIDFrom = from
				})
			w.service("web")
			if took := w.settle("web"); took > 11*time.Minute {
				t.Errorf("published after %s though the assignment takes ten minutes", took)
			}
		})
	}
}

//proves:known-bugs/published-early
func TestAddressIsNotPublishedBeforeItWorks(t *testing.T) {
	w := newWorld(t)
	node := w.node("node-1", vlanIs(corev1.ConditionTrue))
	node.Annotations[contract.NodeReportedIdentity] = `{"hostname":"node-1","vlanInterfaces":{"` + networkID +
		`":{"name":"bond0.20"}}}`
	if err := w.nodes.Replace([]any{node}, ""); err != nil {
		t.Fatal(err)
	}
	w.service("web")
	for range 60 {
		_, err := w.sync("web")
		if assigned := w.blocks(); len(assigned) == 1 && strings.HasSuffix(assigned[0], " assigned") {
			break
		}
		if published := w.get("web").Annotations[contract.KubeVIPAddresses]; published != "" {
			t.Fatalf("%s is announced while the account holds %s", published, w.blocks())
		}
		if len(w.blocks()) == 1 { // without a ready node none would be bought
			node.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		w.clock.Advance(w.pauseAfter(err))
	}
	for range 3 {
		_, err := w.sync("web")
		if err == nil || err.Error() != "waiting for a Node that may carry load-balancer traffic" {
			t.Fatalf("said %v", err)
		}
		w.clock.Advance(interval)
	}
	if got := w.get("web").Annotations[contract.KubeVIPInterface]; got != "bond0.20" {
		t.Errorf("interface of the announcer is %q", got)
	}
	if status := w.get("web").Status.LoadBalancer.Ingress; len(status) != 0 {
		t.Errorf("status %v though no node is ready", status)
	}
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	w.settle("web")
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	w.settle("web") // what is published stays, whatever becomes of nodes
}

//proves:known-bugs/user-load-balancer-ip
func TestUsersLoadBalancerIPCostsNothing(t *testing.T) {
	w := newWorld(t)
	w.service("web", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.7" })
	err := w.refused("web", 5*time.Minute)
	if !strings.Contains(err.Error(), "192.0.2.7") {
		t.Errorf("refusal %q does not name the address", err)
	}
	w.wantPurchases(0)
	if got := w.eventReasons(); len(got) != 1 || got[0] != "IPBlockRefused" {
		t.Errorf("events %v, want one refusal", got)
	}
	if c := w.condition("web"); c.Reason != "AddressRefused" || c.Status != "False" {
		t.Errorf("condition is %s %s", c.Status, c.Reason)
	}
	w.delete("web")
	w.settle("web")
}

//proves:known-bugs/block-deleted-in-portal
//proves:known-bugs/gone-load-balancer
//proves:service-changes/block-deleted
func TestVanishedBlockIsReportedAndDeletionStillWorks(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.wantDrifted()
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.wantDrifted("web")
	err := w.refused("web", 5*time.Minute)
	w.wantDrifted()
	if !strings.Contains(err.Error(), "203.0.113.10") {
		t.Errorf("refusal %q does not name the address", err)
	}
	w.wantPurchases(1)
	w.edit("web", func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = ""
		delete(s.Annotations, contract.ServiceIPAddress)
	})
	w.settle("web")
	w.wantPurchases(2)
	if got := w.get("web"); got.Spec.LoadBalancerIP == "" ||
		got.Annotations[contract.KubeVIPAddresses] != got.Spec.LoadBalancerIP {
		t.Errorf("the new address is %q, announced %q", got.Spec.LoadBalancerIP,
			got.Annotations[contract.KubeVIPAddresses])
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.delete("web")
	w.settle("web")
}

//proves:known-bugs/location-mismatch
//proves:known-bugs/unread-annotation
func TestLocationIsCheckedBeforeThePurchase(t *testing.T) {
	for _, test := range []struct {
		name, option, annotation string
		want                     string
	}{
		{"no agent says", "", "",
			"set the annotation example.com/where of the Service or the option location (PNAP_LOCATION)"},
		{"annotation names another site", "", "SEA", "location SEA is not where public network " + networkID +
			" is; set the annotation example.com/where of the Service to ASH"},
		{"option names another site", "PHX", "ASH", "location PHX is not where public network " + networkID +
			" is; set the option location (PNAP_LOCATION) to ASH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, configured(func(c *reconcile.Config) {
				c.Location = test.option
				c.LocationAnnotation = "example.com/where"
			}))
			w.service("web",
				func(s *corev1.Service) { s.Annotations = map[string]string{"example.com/where": test.annotation} })
			if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), test.want) {
				t.Errorf("refusal is %q, want %q", err, test.want)
			}
			w.wantPurchases(0)
		})
	}
	t.Run("annotation names the right site", func(t *testing.T) {
		w := newWorld(t, configured(func(c *reconcile.Config) { c.Location = "" }))
		w.service("web",
			func(s *corev1.Service) { s.Annotations = map[string]string{contract.ServiceIPLocation: " ash "} })
		w.settle("web")
		w.wantPurchases(1)
	})
}

//proves:known-bugs/never-looked-again
//proves:service-changes/block-unassigned
func TestDriftIsRepaired(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: w.blockID()})
	w.wantDrifted("web")
	_, err := w.sync("web")
	if got := w.get("web").Annotations[contract.ServiceIPBlockAssigned]; got != "false" {
		t.Errorf("the block is said to be assigned: %q (sync said %v)", got, err)
	}
	w.settle("web")
	w.wantBlocks("203.0.113.8/29 assigned")
	w.wantPurchases(1)
	if got := w.get("web").Annotations[contract.ServiceIPBlockAssigned]; got != "true" {
		t.Errorf("the block is not said to be assigned: %q", got)
	}
}
