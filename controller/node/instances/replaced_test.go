package instances

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

func isReadyNow(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
}

// TestAReplacedServerIsNoticed: a server was replaced under the host name of a Node that stayed Ready. That is found
// with the proof that a deletion needs, and the Node is not deleted.
func TestAReplacedServerIsNoticed(t *testing.T) {
	seed, ids := cluster()
	seed.Accounts[0].Servers[1].Hostname = "n0" // the new machine of Node n0
	w := newWorld(t, seed)
	var node *corev1.Node
	for i, id := range ids {
		if i == 1 {
			continue
		}
		if n := w.ready("n"+string(rune('0'+i)), id); i == 0 {
			node = n
		}
	}
	if gone, err := w.GoneWhileReady(testlog.Context(t), node); gone || err != nil {
		t.Fatalf("a server that exists is gone: %v, %v", gone, err)
	}
	w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: ids[0]})
	w.sim.Advance(time.Hour)
	found := time.Duration(0)
	for passed := time.Duration(0); passed < 10*time.Minute && found == 0; passed += time.Minute {
		if gone, err := w.GoneWhileReady(testlog.Context(t), node); gone && err == nil {
			found = passed
		}
		w.sim.Advance(time.Minute)
	}
	if found < confirmAfter || found > 5*time.Minute {
		t.Fatalf("found after %s", found)
	}
	w.expectEvent(ReasonServerReplaced, ids[0], ids[1], "kubectl delete node n0", "restart the kubelet")
	if exists, err := w.InstanceExists(testlog.Context(t), node); exists || err == nil {
		t.Errorf("a Ready Node may be deleted: %v, %v", exists, err)
	}
}

// While the API fails in any way, no server is replaced.
func TestNoServerIsReplacedWhileTheAPIFails(t *testing.T) {
	const list, one = "/bmc/v1/servers", "/bmc/v1/servers/*"
	refused := pnapsim.Fault{Path: one, Action: pnapsim.FaultStatus, Status: 403}
	failed := pnapsim.Fault{Path: one, Action: pnapsim.FaultStatus, Status: 500}
	omitted := pnapsim.Fault{Path: list, Action: pnapsim.FaultDropField, Field: "id"}
	noNetwork := pnapsim.Fault{Path: "/networks/v1/*/*", Action: pnapsim.FaultStatus, Status: 404}
	for name, faults := range map[string][]pnapsim.Fault{
		"list is refused":      {{Path: list, Action: pnapsim.FaultStatus, Status: 403}},
		"all is refused":       {{Action: pnapsim.FaultStatus, Status: 403}},
		"errors":               {{Path: list, Action: pnapsim.FaultStatus, Status: 500}},
		"empty":                {{Path: list, Action: pnapsim.FaultEmpty}},
		"one lacks its ID":     {omitted},
		"it cannot be read":    {omitted, refused},
		"IDs are errors":       {omitted, failed},
		"the network is gone":  {omitted, noNetwork},
		"everything is broken": {{Action: pnapsim.FaultHTML}},
	} {
		t.Run(name, func(t *testing.T) {
			seed, ids := cluster()
			w := newWorld(t, seed)
			var nodes []*corev1.Node
			for i, id := range ids {
				nodes = append(nodes, w.ready("n"+string(rune('0'+i)), id))
			}
			for _, f := range faults {
				f.Method = http.MethodGet
				f.Times = -1
				w.arm(f)
			}
			for range 10 {
				for _, node := range nodes {
					if gone, err := w.GoneWhileReady(testlog.Context(t), node); gone {
						t.Fatalf("the server of Node %s is gone, %v", node.Name, err)
					}
				}
				w.sim.Advance(time.Minute)
			}
			for len(w.events.Events) > 0 {
				if event := <-w.events.Events; strings.Contains(event, ReasonServerReplaced) {
					t.Error(event)
				}
			}
		})
	}
}

// ready adds a Node that is Ready.
func (w *world) ready(name, serverID string) *corev1.Node {
	w.t.Helper()
	node := newNode(name)
	isReadyNow(node)
	return w.add(node, serverID)
}
