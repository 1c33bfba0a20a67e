package conditions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// walk is a publisher in the hands of chance.
type walk struct {
	*testing.T
	seed   int
	random *rand.Rand
	server *server
	pub    *Publisher
	end    func()
	want   map[corev1.NodeConditionType]Condition
	id     string
	// ready and foreign are what others wrote last.
	ready, foreign string

	mu       sync.Mutex
	recorded map[corev1.NodeConditionType][]Transition
}

// TestWalks lets everything happen that can happen to a Node: the API server goes away, hangs, stores and loses the
// answer, refuses annotations; the Node is deleted and registered again; others write their conditions, and ours; the
// watch lags; the agent restarts. When it is over the Node shows within a minute what it should show, what others wrote
// is as they wrote it, and no one writes any more.
func TestWalks(t *testing.T) {
	for seed := range seeds.Count(t, 40) {
		synctest.Test(t, func(t *testing.T) { walkOnce(t, seed) })
		if t.Failed() {
			return
		}
	}
}

func walkOnce(t *testing.T, seed int) {
	t.Helper()
	w := &walk{T: t, seed: seed, random: rand.New(rand.NewPCG(uint64(seed), 7)), server: &server{}, ready: "True",
		want: map[corev1.NodeConditionType]Condition{}}
	w.server.register()
	w.start()
	for range 80 {
		w.step()
	}
	w.rest()
}

// start runs a new publisher, which knows only what the Node shows and what is set now.
func (w *walk) start() {
	w.recorded = map[corev1.NodeConditionType][]Transition{}
	w.pub = New(w.server.client(w.T), "srv-a", func(_ *corev1.Node, tr Transition) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if tr.From == tr.Status {
			w.Errorf("seed %d: recorded a transition from %s to itself", w.seed, tr.From)
		}
		w.recorded[tr.Type] = append(w.recorded[tr.Type], tr)
	}, func(error) {})
	w.server.set(func(s *server) {
		s.watched = nil
		if s.node != nil {
			s.watched = append(s.watched, s.node.DeepCopy())
		}
	})
	for _, c := range w.want {
		w.pub.Set(c)
	}
	if w.id != "" {
		w.pub.Annotate(contract.NodeReportedIdentity, w.id)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- w.pub.Run(ctx) }()
	w.end = func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("seed %d: Run returned %v", w.seed, err)
		}
	}
}

func (w *walk) step() {
	switch w.random.IntN(14) {
	case 0, 1, 2:
		w.check()
	case 3:
		w.id = fmt.Sprintf(`{"hostname":"h%d"}`, w.random.IntN(4))
		w.pub.Annotate(contract.NodeReportedIdentity, w.id)
	case 4:
		w.server.set(func(s *server) { s.down = !s.down })
	case 5:
		w.server.set(func(s *server) { s.loses = !s.loses })
	case 6:
		w.server.set(func(s *server) { s.hangs = !s.hangs })
	case 7:
		w.server.set(func(s *server) { s.refuseAnnotations = !s.refuseAnnotations })
	case 8:
		w.server.remove()
	case 9:
		if says := w.server.shows(); says == "no Node" {
			w.ready = "True"
			w.foreign = ""
			w.server.register()
		}
	case 10:
		w.others()
	case 11:
		w.invalidate()
	case 12:
		w.end()
		w.start()
	case 13:
		time.Sleep(time.Duration(w.random.IntN(20)) * time.Minute)
	}
	time.Sleep(time.Duration(w.random.IntN(4000)) * time.Millisecond)
	if w.random.IntN(3) > 0 {
		w.server.deliver(w.pub)
	}
}

func (w *walk) check() {
	kinds := []corev1.NodeConditionType{contract.ConditionVLANReady, contract.ConditionAnnouncementHealthy}
	statuses := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
	n := w.random.IntN(5)
	c := Condition{Type: kinds[w.random.IntN(2)], Status: statuses[n%3], Reason: "R" + strconv.Itoa(n),
		Message: "interface b\xffnd" + strings.Repeat("é", n*n*60)}
	w.want[c.Type] = c
	w.pub.Set(c)
}

// others is a write of the kubelet and of the controller's publisher.
func (w *walk) others() {
	if w.server.shows() == "no Node" {
		return
	}
	w.ready = []string{"True", "False", "Unknown"}[w.random.IntN(3)]
	w.foreign = strconv.Itoa(w.random.IntN(9))
	w.server.edit(func(node *corev1.Node) {
		contract.FindNodeCondition(node, corev1.NodeReady).Status = corev1.ConditionStatus(w.ready)
		node.Annotations = map[string]string{
			contract.NodeReportedIdentity: node.Annotations[contract.NodeReportedIdentity],
			"example.com/foreign":         w.foreign,
		}
	})
}

// invalidate is what the controller does to the conditions of a silent agent, or a person to conditions at all.
func (w *walk) invalidate() {
	remove := w.random.IntN(2) == 0
	w.server.edit(func(node *corev1.Node) {
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == contract.ConditionVLANReady {
				c.Status = corev1.ConditionUnknown
				c.Reason = "AgentSilent"
			}
		}
		if remove {
			node.Status.Conditions = []corev1.NodeCondition{*contract.FindNodeCondition(node, corev1.NodeReady)}
		}
	})
}

// rest ends all faults and expects order.
func (w *walk) rest() {
	w.server.set(func(s *server) {
		s.down = false
		s.loses = false
		s.hangs = false
		s.refuseAnnotations = false
	})
	if w.server.shows() == "no Node" {
		w.ready = "True"
		w.foreign = ""
		w.server.register()
	}
	if w.id != "" { // a refused value waits for the next heartbeat, another one does not
		w.id = `{"hostname":"last"}`
		w.pub.Annotate(contract.NodeReportedIdentity, w.id)
	}
	for range 50 {
		time.Sleep(time.Second)
		w.server.deliver(w.pub)
	}
	if got, want := w.server.shows(), w.wanted(); got != want {
		w.Errorf("seed %d: the Node says\n%s\nwant\n%s", w.seed, got, want)
	}
	w.checkRecorded()
	_, before := w.server.counts()
	for range 20 * 6 {
		time.Sleep(10 * time.Second)
		w.server.deliver(w.pub)
	}
	if _, after := w.server.counts(); after-before > 5 {
		w.Errorf("seed %d: %d writes in 20 minutes of rest, want only heartbeats", w.seed, after-before)
	}
	w.end()
}

func (w *walk) wanted() string {
	var parts []string
	for _, kind := range []corev1.NodeConditionType{contract.ConditionVLANReady,
		contract.ConditionAnnouncementHealthy} {
		if c, has := w.want[kind]; has {
			parts = append(parts, fmt.Sprintf("%s=%s %s %s", kind, c.Status, c.Reason,
				text.Cut(strings.ToValidUTF8(c.Message, "\uFFFD"), MessageLimit, "…")))
		}
	}
	parts = append(parts, fmt.Sprintf("%s=%s KubeletReady ", corev1.NodeReady, w.ready))
	return strings.Join(append(parts, "identity="+w.id, "foreign="+w.foreign), "\n")
}

// checkRecorded expects the last recorded transition of a condition to be what holds.
func (w *walk) checkRecorded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, recorded := range w.recorded {
		if last := recorded[len(recorded)-1]; last.Status != w.want[kind].Status {
			w.Errorf("seed %d: %s is %s, but %s was recorded last", w.seed, kind, w.want[kind].Status, last.Status)
		}
	}
}
