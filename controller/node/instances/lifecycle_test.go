package instances

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// monitorPeriod is how often the framework checks every Node that is not ready (--node-monitor-period).
const monitorPeriod = 5 * time.Second

// watch simulates the framework's node lifecycle controller for Nodes that are not ready, for a while, and returns when
// each Node would have been deleted.
func (w *world) watch(d, step time.Duration, nodes ...*corev1.Node) map[string]time.Duration {
	w.t.Helper()
	deleted := map[string]time.Duration{}
	for passed := time.Duration(0); passed < d; passed += step {
		for _, node := range nodes {
			if _, gone := deleted[node.Name]; gone {
				continue
			}
			id, err := contract.ParseProviderID(node.Spec.ProviderID)
			if err != nil {
				w.t.Fatal(err)
			}
			if found, err := w.exists(node, id); err == nil && !found {
				deleted[node.Name] = passed
			}
		}
		w.sim.Advance(step)
	}
	return deleted
}

// spoil serves the API with a changed list of servers.
func spoil(t *testing.T, target string, change func(servers []json.RawMessage) []json.RawMessage) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // clients that give up are part of the test
	proxy.ModifyResponse = func(response *http.Response) error {
		if response.Request.URL.Path != "/bmc/v1/servers" || response.StatusCode != http.StatusOK {
			return nil
		}
		raw, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		var servers []json.RawMessage
		if json.Unmarshal(raw, &servers) == nil { // else it is changed already
			if raw, err = json.Marshal(change(servers)); err != nil {
				return err
			}
		}
		response.Body = io.NopCloser(bytes.NewReader(raw))
		response.ContentLength = int64(len(raw))
		response.Header.Set("Content-Length", strconv.Itoa(len(raw)))
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// cluster is an account with eight servers, and their IDs.
func cluster() (pnapsim.Seed, []string) {
	seed := simtest.Seed()
	account := &seed.Accounts[0]
	account.Servers = nil
	var ids []string
	for i := range 8 {
		id := fmt.Sprintf("5fa54d1e91867c03a0a7b4%02x", i)
		ids = append(ids, id)
		account.Servers = append(account.Servers, pnapsim.ServerSeed{
			ID: id, Hostname: fmt.Sprintf("n%d", i), Location: "ASH", NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{fmt.Sprintf("10.0.0.%d", 20+i)},
		})
	}
	return seed, ids
}

// During two minutes of any failure while no Node is ready, none is deleted, and the failure of one element does not
// prevent the initialization of others.
//
//proves:known-bugs/nil-answer
//proves:known-bugs/no-timeout
func TestTwoMinutesOfFailureDeleteNoNode(t *testing.T) {
	const list, one = "/bmc/v1/servers", "/bmc/v1/servers/*"
	status := func(path string, code int) pnapsim.Fault {
		return pnapsim.Fault{Path: path, Action: pnapsim.FaultStatus, Status: code, Times: -1}
	}
	half := func(servers []json.RawMessage) []json.RawMessage { return servers[:len(servers)/2-1] }
	same := func(servers []json.RawMessage) []json.RawMessage { return servers }
	for name, test := range map[string]struct {
		faults []pnapsim.Fault
		change func([]json.RawMessage) []json.RawMessage
		step   time.Duration
		// others reports that a new Node, whose server is in the list, can be initialized in the meantime.
		others bool
	}{
		"401": {faults: []pnapsim.Fault{status("", 401)}},
		"403": {faults: []pnapsim.Fault{status("", 403)}},
		"429": {faults: []pnapsim.Fault{status("", 429)}},
		"500": {faults: []pnapsim.Fault{status("", 500)}},
		"time-outs": {faults: []pnapsim.Fault{{Action: pnapsim.FaultHang, Times: -1}},
			step: 15 * time.Second},
		"reads by ID time out": {faults: []pnapsim.Fault{{Path: one, Action: pnapsim.FaultHang, Times: -1}},
			change: half, step: 15 * time.Second, others: true},
		"empty list": {change: func([]json.RawMessage) []json.RawMessage {
			return []json.RawMessage{}
		}},
		"empty list, reads by ID rejected": {change: func([]json.RawMessage) []json.RawMessage {
			return []json.RawMessage{}
		}, faults: []pnapsim.Fault{status(one, 403)}},
		"half list":                       {change: half, others: true},
		"half list, reads by ID rejected": {change: half, faults: []pnapsim.Fault{status(one, 403)}, others: true},
		"one element is not an object": {change: func(s []json.RawMessage) []json.RawMessage {
			s[7] = json.RawMessage(`"?"`)
			return s
		}, others: true},
		"one element of other types": {change: func(s []json.RawMessage) []json.RawMessage {
			s[7] = json.RawMessage(`{"id":7,"hostname":[]}`)
			return s
		}, others: true},
		"one element has no hostname": {change: same, faults: []pnapsim.Fault{{Path: list,
			Action: pnapsim.FaultDropField, Field: "hostname", Element: 7, Times: -1}}, others: true},
		"null instead of the list": {change: func([]json.RawMessage) []json.RawMessage { return nil }},
		"list is cut off": {faults: []pnapsim.Fault{{Path: list, Action: pnapsim.FaultTruncate,
			Times: -1}}},
		"every other request fails (500)": {faults: []pnapsim.Fault{{Path: list, Action: pnapsim.FaultStatus,
			Status: 500, Times: 5, Skip: 2}}, change: half, others: true},
	} {
		t.Run(name, func(t *testing.T) {
			seed, ids := cluster()
			sim, address := simtest.New(t, pnapsim.Config{}, seed)
			var spoilt atomic.Bool
			address = spoil(t, address, func(servers []json.RawMessage) []json.RawMessage {
				if !spoilt.Load() || test.change == nil {
					return servers
				}
				return test.change(servers)
			})
			patience := time.Minute
			if test.step > 0 { // requests get no answer: each check takes this long
				patience = 300 * time.Millisecond
			}
			w := newWorldAt(t, sim, address, patience)
			var nodes []*corev1.Node
			for i, id := range ids[1:] {
				nodes = append(nodes, w.node(fmt.Sprintf("n%d", i+1), id))
			}
			if deleted := w.watch(20*time.Second, monitorPeriod, nodes...); len(deleted) > 0 {
				t.Fatalf("while all servers were present: deleted %v", deleted)
			}
			spoilt.Store(true)
			for _, fault := range test.faults {
				w.arm(fault)
			}
			if deleted := w.watch(2*time.Minute, max(test.step, monitorPeriod), nodes...); len(deleted) > 0 {
				t.Errorf("deleted %v", deleted)
			}
			_, err := w.InstanceMetadata(testlog.Context(t), newNode("n0"))
			for range 20 { // with little patience, an answer of a busy machine comes too late
				if err == nil || !test.others {
					break
				}
				w.sim.Advance(failureWindow)
				_, err = w.InstanceMetadata(testlog.Context(t), newNode("n0"))
			}
			if test.others != (err == nil) {
				t.Errorf("initializing another Node: %v", err)
			}
		})
	}
}

// The Node of a deprovisioned server is deleted within three minutes of not being ready, with the framework's default
// periods, even if the server remains as reserved.
//
//proves:known-bugs/no-grace
//proves:known-bugs/not-found-error
//proves:known-bugs/released-reserved
func TestDeprovisionedServerLosesItsNode(t *testing.T) {
	for name, reservation := range map[string]string{"hourly": "", "reserved": "68f1c3a2b4d5e6f708192a3b"} {
		t.Run(name, func(t *testing.T) {
			seed, ids := cluster()
			seed.Accounts[0].Servers[3].ReservationID = reservation
			sim, address := simtest.New(t, pnapsim.Config{}, seed)
			w := newWorldAt(t, sim, address, time.Minute)
			var nodes []*corev1.Node
			for i, id := range ids {
				nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), id))
			}
			w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: ids[3]})
			deleted := w.watch(5*time.Minute, monitorPeriod, nodes...)
			at, ok := deleted["n3"]
			if !ok || at > 3*time.Minute || len(deleted) != 1 {
				t.Errorf("deleted %v, want n3 within 3 minutes", deleted)
			}
			t.Logf("the Node was deleted %v after it was not ready", at)
		})
	}
}

// A check with a Node from a stale cache does not delete the current Node.
//
//proves:known-bugs/stale-cache
func TestGoneIsConfirmedLive(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"replaced": {change: func(n *corev1.Node) { n.UID = "another" }, want: "was replaced"},
		"of other server": {change: func(n *corev1.Node) { n.Spec.ProviderID = contract.ProviderID(simtest.Server2ID) },
			want: "was replaced"},
		"ready by now": {change: func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}, want: "is Ready"},
		"still not ready": {change: func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		}},
		"already deleted": {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simtest.Seed())
			node := w.node("node-1", simtest.Server1ID)
			current := node.DeepCopy()
			if test.change == nil {
				if err := w.kube.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			} else {
				test.change(current)
				if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), current, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
			w.sim.Advance(10 * time.Minute)
			deleted := w.watch(time.Minute, monitorPeriod, node)
			if gone := len(deleted) == 1; gone != (test.want == "") {
				t.Errorf("deleted %v, want error %q", deleted, test.want)
			}
			if _, err := w.exists(node, simtest.Server1ID); test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// A list that was requested before a Node was created does not prove that its server is missing.
//
//proves:known-bugs/stale-cache
//proves:known-bugs/joining-node
func TestListOlderThanTheNodeIsNoWitness(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	if _, err := w.config.Inventory.List(testlog.Context(t)); err != nil {
		t.Fatal(err)
	}
	const unknown = "5fa54d1e91867c03a0a7b4ff"
	w.sim.Advance(5 * time.Second)
	node := w.node("late", unknown)
	node.CreationTimestamp = metav1.NewTime(w.sim.Clock().Now())
	if _, err := w.InstanceExists(testlog.Context(t), node); err == nil ||
		!strings.Contains(err.Error(), "older than the Node") {
		t.Errorf("error %v", err)
	}
	w.expectNoEvent()
	w.sim.Advance(DefaultWindow)
	if _, err := w.InstanceExists(testlog.Context(t), node); err == nil ||
		!strings.Contains(err.Error(), "to be confirmed") {
		t.Errorf("error %v", err)
	}
	w.expectEvent("Warning PossibleNodeDeletion", "is missing")
}

// The framework retries every few seconds; the warning is repeated rarely.
func TestWarningsAreNotRepeated(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := w.node("unmatched", "")
	ask := func() {
		if _, err := w.InstanceMetadata(testlog.Context(t), node); err == nil {
			t.Fatal("no error")
		}
	}
	for range 20 {
		ask()
		w.sim.Advance(20 * time.Second)
	}
	w.expectEvent("Warning ServerNotFound", `"unmatched"`)
	w.expectNoEvent()
	w.sim.Advance(repeatAfter)
	ask()
	w.expectEvent("Warning ServerNotFound")
	w.expectNoEvent()
}

// A --node-ip that the server does not have is kept, and reported.
//
//proves:known-bugs/node-ip
func TestForeignNodeIPIsReported(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := w.node("node-1", "")
	node.Annotations["alpha.kubernetes.io/provided-node-ip"] = "192.168.7.7"
	for range 3 {
		metadata, err := w.InstanceMetadata(testlog.Context(t), node)
		if err != nil {
			t.Fatal(err)
		}
		if want := "Hostname=node-1 InternalIP=10.0.0.11 InternalIP=192.168.7.7 ExternalIP=203.0.113.2"; render(
			metadata.NodeAddresses) != want {
			t.Errorf("addresses %q, want %q", render(metadata.NodeAddresses), want)
		}
	}
	w.expectEvent("Warning MisconfiguredInternalIP", "192.168.7.7", simtest.Server1ID, "10.0.0.11")
	w.expectNoEvent()
	node.Annotations["alpha.kubernetes.io/provided-node-ip"] = "10.0.0.11"
	if _, err := w.InstanceMetadata(testlog.Context(t), node); err != nil {
		t.Fatal(err)
	}
	w.expectNoEvent()
}

// The longest list of the last ten minutes counts, and the last one however old it is.
//
//proves:known-bugs/half-list
func TestPeakOfTheLists(t *testing.T) {
	i := NewInventory(InventoryConfig{})
	for _, each := range []struct {
		after time.Duration
		count int
		want  int
	}{
		{0, 8, 8}, {time.Minute, 3, 8}, {9 * time.Minute, 4, 8}, {10 * time.Minute, 4, 4}, {12 * time.Minute, 2, 4},
		{5 * time.Hour, 1, 2}, {5*time.Hour + time.Minute, 6, 6},
	} {
		if got := i.peak(start.Add(each.after), each.count); got != each.want {
			t.Errorf("after %v: %d, want %d", each.after, got, each.want)
		}
	}
}
