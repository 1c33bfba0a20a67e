package instances

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// advises is a Warning, what leads to it and what it says to do.
type advises struct {
	// drive returns the Node that the Warning is about.
	drive  func(*world) *corev1.Node
	reason string
	// advice is a part of the text, with the parameters of remedy.
	advice string
	// remedy returns the Node as it is then; nil when it was deleted.
	remedy func(w *world, node *corev1.Node, advised []string) *corev1.Node
}

// uninitialized adds a Node without provider ID.
func uninitialized(name string) func(*world) *corev1.Node {
	return func(w *world) *corev1.Node { return w.node(name, "") }
}

// ofServer sets spec.providerID of the Node.
func ofServer(id string) func(*world, *corev1.Node, []string) *corev1.Node {
	return func(_ *world, node *corev1.Node, _ []string) *corev1.Node {
		node.Spec.ProviderID = contract.ProviderID(id)
		return node
	}
}

// sameNames gives both servers the host name node-9.
func sameNames(w *world) *corev1.Node {
	for _, id := range []string{simtest.Server1ID, simtest.Server2ID} {
		w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: id, Hostname: "node-9"})
	}
	return w.node("node-9", "")
}

// deprovisioned deletes the server of node-1 in the portal; add makes the Node.
func deprovisioned(w *world, add func(name, serverID string) *corev1.Node) *corev1.Node {
	node := add("node-1", simtest.Server1ID)
	w.node("node-2", simtest.Server2ID)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
	w.sim.Advance(time.Hour)
	return node
}

// withoutAccess has the API refuse what matches.
func (w *world) withoutAccess(path string) {
	w.arm(pnapsim.Fault{Path: path, Action: pnapsim.FaultStatus, Status: http.StatusForbidden, Times: -1})
}

// given restores what withoutAccess took, as credentials of the right account do.
func given(w *world, node *corev1.Node, _ []string) *corev1.Node {
	w.sim.Disarm()
	return node
}

func nodeDeleted(w *world, node *corev1.Node, _ []string) *corev1.Node {
	if err := w.nodes.Delete(node); err != nil {
		w.t.Fatal(err)
	}
	return nil
}

var remedies = map[string]advises{
	"ServerNotFound, renamed": {uninitialized("node-9"), ReasonServerNotFound, "rename the server",
		func(w *world, node *corev1.Node, _ []string) *corev1.Node {
			w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: simtest.Server1ID, Hostname: node.Name})
			return node
		}},
	"ServerNotFound, named": {uninitialized("node-9"), ReasonServerNotFound, "or set spec.providerID of the Node",
		ofServer(simtest.Server1ID)},
	"ServerAmbiguous": {sameNames, ReasonServerAmbiguous,
		`several phoenixNAP servers .*: (\w+) \(.* set spec.providerID of the Node to phoenixnap://<server-id>`,
		func(w *world, node *corev1.Node, advised []string) *corev1.Node {
			return ofServer(advised[1])(w, node, nil)
		}},
	"ServerLookupFailed": {func(w *world) *corev1.Node {
		w.withoutAccess("/bmc/v1/*")
		return w.node("node-1", "")
	}, ReasonServerLookupFailed, "have the scopes", given},
	"MisconfiguredInternalIP": {func(w *world) *corev1.Node {
		node := w.node("node-1", "")
		node.Annotations["alpha.kubernetes.io/provided-node-ip"] = "192.168.7.7"
		return node
	}, ReasonMisconfiguredInternalIP, `which has ([0-9.]+).*: correct --node-ip`,
		func(_ *world, node *corev1.Node, advised []string) *corev1.Node {
			node.Annotations["alpha.kubernetes.io/provided-node-ip"] = advised[1]
			return node
		}},
	"ServerReplaced": {func(w *world) *corev1.Node { return deprovisioned(w, w.ready) }, ReasonServerReplaced,
		`kubectl delete node (\S+), then restart the kubelet`,
		func(w *world, node *corev1.Node, advised []string) *corev1.Node {
			nodeDeleted(w, node, nil)
			w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: simtest.Server2ID, Hostname: advised[1]})
			if err := w.nodes.Replace(nil, ""); err != nil {
				w.t.Fatal(err)
			}
			return w.node(advised[1], "") // as the kubelet registers it
		}},
	"PossibleNodeDeletion, credentials": {func(w *world) *corev1.Node {
		w.node("node-2", simtest.Server2ID)
		w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "id", Times: -1})
		w.withoutAccess("/bmc/v1/servers/*")
		w.withoutAccess("/networks/v1/*/*")
		return w.node("node-1", simtest.Server1ID)
	}, ReasonPossibleNodeDeletion, "check that the credentials belong to the account that owns the servers", given},
	"PossibleNodeDeletion, failing": {func(w *world) *corev1.Node {
		w.node("node-2", simtest.Server2ID)
		w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "id", Times: -1})
		w.arm(pnapsim.Fault{Path: "/bmc/v1/servers/*", Action: pnapsim.FaultStatus, Status: 500, Times: -1})
		return w.node("node-1", simtest.Server1ID)
	}, ReasonPossibleNodeDeletion, "cannot be read by its ID: the Node is kept; the controller tries again by itself",
		given},
	"PossibleNodeDeletion, deleted": {func(w *world) *corev1.Node {
		node := deprovisioned(w, w.node)
		w.node("node-3", "5fa54d1e91867c03a0a7b4aa") // gone as well, so that more than half are
		return node
	}, ReasonPossibleNodeDeletion, `if the server is really gone, delete the Node yourself: kubectl delete node node-1`,
		nodeDeleted},
}

// TestWarningsEndByTheirRemedy does what a Warning about a Node says: then its server is found, and no Warning follows.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	for name, test := range remedies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simtest.Seed())
			node := test.drive(w)
			w.elapse(10*time.Minute, node)
			advised := w.advised(test.reason, test.advice)
			node = test.remedy(w, node, advised)
			w.elapse(time.Minute, node)
			w.said()
			w.elapse(30*time.Minute, node)
			if said := w.said(); len(said) > 0 {
				t.Errorf("after the remedy there are the events %q", said)
			}
			if node == nil {
				return
			}
			if metadata, err := w.InstanceMetadata(testlog.Context(t), node); err != nil || metadata.ProviderID == "" {
				t.Errorf("after the remedy the Node has no server: %v", err)
			}
		})
	}
}

// elapse has the framework and the watch of servers look at a Node for a while, as they do.
func (w *world) elapse(during time.Duration, node *corev1.Node) {
	const every = 20 * time.Second
	for passed := time.Duration(0); passed < during; passed += every {
		w.sim.Advance(every)
		if node == nil {
			continue
		}
		_, _ = w.InstanceMetadata(testlog.Context(w.t), node)
		switch {
		case node.Spec.ProviderID == "":
		case IsReady(node):
			_, _ = w.GoneWhileReady(testlog.Context(w.t), node)
		default:
			_, _ = w.InstanceExists(testlog.Context(w.t), node)
		}
	}
}

// said are the events since the last call.
func (w *world) said() (all []string) {
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	return all
}

// advised returns what a Warning of the reason advises.
func (w *world) advised(reason, advice string) []string {
	w.t.Helper()
	all := w.said()
	for _, event := range all {
		if found := regexp.MustCompile("^Warning " + reason + " .*" + advice).FindStringSubmatch(event); found != nil {
			return found
		}
	}
	w.t.Fatalf("events %q, want a Warning %s that advises %s", all, reason, advice)
	return nil
}
