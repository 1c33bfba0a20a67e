//go:build linux

package speaker

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestNotices checks what is recorded for each event, where, and which node it names.
func TestNotices(t *testing.T) {
	for name, test := range map[string]struct {
		event  election.Event
		want   Notice // but for the message; the zero Notice for nothing
		naming []string
	}{
		"taken from another node": {election.Event{Kind: election.BecameOwner, Address: address, Node: "b"},
			Notice{Address: address, Type: corev1.EventTypeNormal, Reason: EventTakenOver},
			[]string{"Node a ", "Node b", address.String()}},
		"the first to have it": {election.Event{Kind: election.BecameOwner, Address: address}, Notice{}, nil},
		"its own again": {election.Event{Kind: election.BecameOwner, Address: address, Node: "a"}, Notice{},
			nil},
		"given": {election.Event{Kind: election.LostOwnership, Address: address, Node: "b"}, Notice{},
			nil},
		"rebuilt": {election.Event{Kind: election.ViewRebuilt}, Notice{}, nil},
		"another one is silent": {election.Event{Kind: election.MemberFailed, Node: "b"},
			Notice{Type: corev1.EventTypeWarning, Reason: EventUnreachable},
			[]string{"Node b", "Fix what phoenixnap-agent diagnose reports on that Node"}},
		"another one is off": {election.Event{Kind: election.MemberOff, Node: "b"},
			Notice{Type: corev1.EventTypeWarning, Reason: EventRemoved},
			[]string{"Node b", "switch it off in the phoenixNAP portal", "or start its kubelet and its agent again"}},
		"another one comes": {election.Event{Kind: election.MemberJoined, Node: "b"},
			Notice{Type: corev1.EventTypeNormal, Reason: EventJoined}, []string{"Node b"}},
		"another one leaves": {election.Event{Kind: election.MemberLeft, Node: "b"},
			Notice{Type: corev1.EventTypeNormal, Reason: EventLeft}, []string{"Node b"}},
		"no majority": {election.Event{Kind: election.LeaseLost},
			Notice{Type: corev1.EventTypeWarning, Reason: EventQuorumLost},
			[]string{"Fix what phoenixnap-agent diagnose reports here"}},
		"moves often": {election.Event{Kind: election.MovesOften, Address: address, Node: "b", Number: 5},
			Notice{Address: address, Type: corev1.EventTypeWarning, Reason: EventMovesOften},
			[]string{"Node a,", "Node b ", address.String(), "5 times", "externalTrafficPolicy: Local",
				"whose endpoints become ready and unready"}},
		"late": {election.Event{Kind: election.HeartbeatLate}, Notice{}, nil},
		"another cluster": {election.Event{Kind: election.OtherCluster, Node: "b"},
			Notice{Type: corev1.EventTypeWarning, Reason: EventKeyShared}, []string{"Node b of another cluster",
				"Replace the key of one of the clusters"}},
		"two agents": {election.Event{Kind: election.DuplicateMember},
			Notice{Type: corev1.EventTypeWarning, Reason: EventDuplicate}, []string{"Stop one of them"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := NewRecorder("a").Of(test.event, noon)
			if ok != (test.want != Notice{}) {
				t.Fatalf("recorded %t: %+v", ok, got)
			}
			for _, each := range test.naming {
				if !strings.Contains(got.Message, each) {
					t.Errorf("the message %q does not name %q", got.Message, each)
				}
			}
			if ok && got.Message == "" {
				t.Error("there is no message")
			}
			if got.Message = ""; got != test.want {
				t.Errorf("recorded %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestLimit: a node that takes over hundreds of addresses records some of them, and once that there are more; events
// about nodes are still recorded. After a minute it records again.
func TestLimit(t *testing.T) {
	recorder := NewRecorder("a")
	for round := range 3 {
		now := noon.Add(time.Duration(round) * window)
		reasons := map[string]int{}
		for i := range 500 {
			n, ok := recorder.Of(election.Event{Kind: election.BecameOwner, Address: address, Node: "b"},
				now.Add(time.Duration(i)*time.Millisecond))
			if ok {
				reasons[n.Reason]++
			}
		}
		for range 100 {
			if n, ok := recorder.Of(election.Event{Kind: election.DuplicateMember}, now.Add(window/2)); ok {
				reasons[n.Reason]++
			}
		}
		if reasons[EventTakenOver] != mostOnServices || reasons[EventMany] != 1 ||
			reasons[EventDuplicate] != mostOnNodes {
			t.Errorf("in minute %d it records %v, want %d takeovers, once that there are more, and %d other events",
				round, reasons, mostOnServices, mostOnNodes)
		}
	}
}
