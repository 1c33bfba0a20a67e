package metadata

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// advised returns what a Warning of the reason advises, among the events so far.
func advised(t *testing.T, events chan string, reason, advice string) []string {
	t.Helper()
	all := said(events)
	found := regexp.MustCompile("Warning " + reason + " .*" + advice).FindStringSubmatch(strings.Join(all, "\n"))
	if found == nil {
		t.Fatalf("events %q, want a Warning %s that advises %s", all, reason, advice)
	}
	return found
}

// said are the events since the last call.
func said(events chan string) (all []string) {
	for len(events) > 0 {
		all = append(all, <-events)
	}
	return all
}

// TestExclusionEndsByItsRemedy does what ExcludedFromPublicNetwork says: then the Node gets its label again.
func TestExclusionEndsByItsRemedy(t *testing.T) {
	selector := labels.SelectorFromSet(labels.Set{"edge": "yes"})
	for name, test := range map[string]struct {
		exclude func(*corev1.Node)
		advice  string
		remedy  func(n *corev1.Node, advised []string)
	}{
		"excluded": {func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" },
			`\(kubectl label node a (\S+)-\)`,
			func(n *corev1.Node, advised []string) { delete(n.Labels, advised[1]) }},
		"not selected": {func(n *corev1.Node) { delete(n.Labels, "edge") }, `\(add the labels "(\w+)=(\w+)"\)`,
			func(n *corev1.Node, advised []string) { n.Labels[advised[1]] = advised[2] }},
		"a finding": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
			`reason VLANInterfaceDown \(kubectl describe node a\)`, // which shows the condition with its fix
			func(n *corev1.Node, _ []string) { n.Status.Conditions[0].Status = corev1.ConditionTrue }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := []*corev1.Node{readyNode("a", corev1.ConditionTrue, true),
					readyNode("b", corev1.ConditionTrue, true)}
				for _, n := range nodes {
					n.Labels["edge"] = "yes"
				}
				b := newLabelHarness(t, selector, nodes...)
				defer b.stop()
				pass(admitAfter)
				b.edit("a", test.exclude)
				pass(10 * time.Minute)
				found := advised(t, b.events.Events, ReasonExcluded, test.advice)
				b.edit("a", func(n *corev1.Node) { test.remedy(n, found) })
				pass(time.Hour)
				again := said(b.events.Events)
				if !b.labelled("a") || strings.Contains(strings.Join(again, ""), "Warning") {
					t.Errorf("after the remedy the Node is labelled: %t; events %q", b.labelled("a"), again)
				}
			})
		})
	}
}

// edit changes a Node.
func (b *labelHarness) edit(name string, change func(*corev1.Node)) {
	b.t.Helper()
	node, err := b.client.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		change(node)
		_, err = b.client.CoreV1().Nodes().Update(b.t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestSilenceEndsByItsRemedy does what AgentSilent and NodeUnreachable say: the pod runs again, or the server does,
// with its kubelet. Then the conditions are those of the agent, and no event follows.
func TestSilenceEndsByItsRemedy(t *testing.T) {
	for reason, advice := range map[string]string{
		ReasonAgentSilent: `see its pod: kubectl -n kube-system get pods -l (\S+)=(\S+) --field-selector spec.nodeName=(\S+)$`,
		ReasonNodeUnreachable: `see in the phoenixNAP portal whether its server runs, and at its console ` +
			`why it reaches no API server$`,
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, stop := newWatchHarness(t, watchedNode("a"), watchedNode("b"))
				defer stop()
				p.live("a", 2*time.Minute)
				if reason == ReasonNodeUnreachable {
					p.set("a", corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
				}
				p.live("b", 10*time.Minute)
				found := advised(t, p.events.Events, reason, advice)
				node := "a"
				if reason == ReasonAgentSilent {
					node = found[3] // whose pod is started again
				}
				p.set(node, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady")
				p.set(node, contract.ConditionVLANReady, corev1.ConditionTrue, "AllChecksPassed")
				p.set(node, contract.ConditionAnnouncementHealthy, corev1.ConditionFalse, "NoAnswer")
				for range 120 {
					p.renew("b")
					p.renew(node)
					pass(30 * time.Second)
				}
				p.expect("a", well)
				if again := said(p.events.Events); len(again) > 0 {
					t.Errorf("after the remedy there are the events %q", again)
				}
			})
		})
	}
}

// TestMissingMembershipEndsByItsRemedy does what PublicNetworkMembershipMissing says.
func TestMissingMembershipEndsByItsRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		advice string
		remedy func(d *harness, found []string)
		// says is what the annotation of the Node contains afterwards.
		says string
	}{
		"added": {`server (\S+) is not a member of public network (\S+): .*add the server to the network with an ` +
			`address of an assigned IP block`, func(d *harness, found []string) {
			d.edit(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: found[1], Network: found[2],
				IPs: []string{"203.0.113.5"}})
		}, `"member":true`},
		"excluded": {`or exclude the Node with --service-node-selector`,
			func(d *harness, _ []string) { d.label("node-1", "edge", "no") }, `"announcer":"none"`},
	} {
		t.Run(name, func(t *testing.T) {
			node := serverNode("node-1", simtest.Server1ID)
			node.Labels = map[string]string{"edge": "yes"}
			d := newHarness(t, node, serverNode("node-2", simtest.Server2ID))
			d.config.Published = published(PublicNetwork{Named: network.Named{Name: "default", ID: simtest.NetworkID},
				Announcer: contract.AnnouncerKubeVIP, Selector: labels.SelectorFromSet(labels.Set{"edge": "yes"})})
			d.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: simtest.Server1ID, Network: simtest.NetworkID})
			d.sim.Advance(5 * time.Minute)
			d.run()
			d.awaitRequests(d.requests() + 8)
			found := advised(t, d.events.Events, ReasonMembershipMissing, test.advice)
			test.remedy(d, found)
			d.eventually("node-1", func(have map[string]string) error {
				if published := have[contract.NodePublicNetworks]; !strings.Contains(published, test.says) {
					return fmt.Errorf("published is %s, want %s", published, test.says)
				}
				return nil
			})
			d.awaitRequests(d.requests() + 8)
			if again := said(d.events.Events); len(again) > 0 {
				t.Errorf("after the remedy there are the events %q", again)
			}
		})
	}
}

func (d *harness) edit(e pnapsim.Edit) {
	d.t.Helper()
	if err := d.sim.OutOfBand(e); err != nil {
		d.t.Fatal(err)
	}
}
