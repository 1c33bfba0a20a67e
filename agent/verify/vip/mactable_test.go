package vip

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func identified(name string, macs ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if len(macs) > 0 {
		node.Annotations[contract.NodeReportedIdentity] = fmt.Sprintf(`{"hostname":%q,"addresses":[],"macs":[%q]}`,
			name, macs[0])
	}
	return node
}

// TestRoster: the likely Nodes are asked first; all of them only when these are not it, and rarely.
func TestRoster(t *testing.T) {
	for name, tc := range map[string]struct {
		mac    string
		likely []string
		node   string
		lists  int // in 100 s
	}{
		"a likely Node":            {macA, []string{"srv-a"}, "srv-a", 0},
		"another than the likely":  {macB, []string{"srv-a", "", "other"}, "srv-b", 1},
		"no Node":                  {"02:00:00:00:00:99", []string{"srv-a"}, "", 2},
		"a Node without an agent":  {macA, []string{"srv-c"}, "srv-a", 1},
		"no node is likelier":      {macB, nil, "srv-b", 1},
		"a report in other words":  {macA, []string{"srv-d"}, "srv-a", 1},
		"a name that is not there": {macA, []string{"srv-x", "srv-a"}, "srv-a", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := identified("srv-d")
				broken.Annotations[contract.NodeReportedIdentity] = "{"
				client := fake.NewClientset(identified("srv-a", macA), identified("srv-b", macB), identified("srv-c"),
					broken)
				news := 0
				r := NewMACTable(client.CoreV1().Nodes(), func() { news++ })
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				if _, known := r.Of(tc.mac, true, tc.likely...); known {
					t.Error("known before it was looked up")
				}
				synctest.Wait()
				for range 100 {
					if node, known := r.Of(tc.mac, true, tc.likely...); !known || node != tc.node {
						t.Fatalf("%s belongs to %q, %t; want %q", tc.mac, node, known, tc.node)
					}
					r.Of(fmt.Sprintf("02:00:00:00:01:%02x", time.Now().Second()), false, "srv-a")
					time.Sleep(time.Second)
					synctest.Wait()
				}
				lists := 0
				for _, a := range client.Actions() {
					if a.GetVerb() == "list" {
						lists++
					}
				}
				if lists != tc.lists || news == 0 {
					t.Errorf("%d lists in 100 s (want %d), notified %d times", lists, tc.lists, news)
				}
				cancel()
				if err := <-done; err != nil {
					t.Errorf("Run returned %v after its context ended, want nil", err)
				}
			})
		})
	}
}

// TestRosterIsNotSure: what could not be looked up belongs neither to a Node nor to none.
func TestRosterIsNotSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(identified("srv-a", macA))
		failing := true
		client.PrependReactor("*", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return failing, nil, errors.New("connection refused")
		})
		r := NewMACTable(client.CoreV1().Nodes(), func() {})
		r.Of(macA, false, "srv-a")
		if err := r.Look(t.Context()); err == nil {
			t.Error("a failure is no error")
		}
		if _, known := r.Of(macA, false, "srv-a"); known {
			t.Error("known although it could not be looked up")
		}
		failing = false
		if err := r.Look(t.Context()); err != nil {
			t.Error(err)
		}
		if node, known := r.Of(macA, false, "srv-a"); !known || node != "srv-a" {
			t.Errorf("after the failure: %q, %t", node, known)
		}
	})
}

func TestRosterForgets(t *testing.T) {
	r := NewMACTable(fake.NewClientset().CoreV1().Nodes(), func() {})
	for i := range 10 * maxNames {
		r.Of(fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256), true)
		if err := r.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.learn(fmt.Sprintf("02:00:00:01:%02x:%02x", i/256, i%256), "srv-a")
	}
	if len(r.names) > maxNames {
		t.Errorf("%d hardware addresses are remembered, want at most %d", len(r.names), maxNames)
	}
}
