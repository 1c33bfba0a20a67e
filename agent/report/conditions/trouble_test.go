package conditions

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// inTrouble runs test inside a bubble with a publisher at work on a server whose faults can be chosen.
func inTrouble(t *testing.T, test func(w *walk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &walk{T: t, random: rand.New(rand.NewPCG(1, 7)), server: &server{}, ready: "True",
			want: map[corev1.NodeConditionType]Condition{}}
		w.server.register()
		w.start()
		w.server.deliver(w.pub)
		synctest.Wait()
		test(w)
		w.end()
	})
}

func (w *walk) say(c Condition) {
	w.want[c.Type] = c
	w.pub.Set(c)
	synctest.Wait()
}

func (w *walk) expect(when string) {
	w.Helper()
	w.server.deliver(w.pub)
	synctest.Wait()
	if got, want := w.server.shows(), w.wanted(); got != want {
		w.Errorf("%s the Node says\n%s\nwant\n%s", when, got, want)
	}
}

func TestANodeRegisteredAgainLearnsAllAtOnce(t *testing.T) {
	inTrouble(t, func(w *walk) {
		w.say(vlan(corev1.ConditionFalse, "VLANInterfaceDown"))
		w.id = "{}"
		w.pub.Annotate(contract.NodeReportedIdentity, w.id)
		w.server.remove()
		w.say(vlan(corev1.ConditionTrue, "Ready")) // not found, again and again
		time.Sleep(time.Hour)
		w.server.deliver(w.pub)
		w.server.register()
		w.expect("at the instant of its return")
	})
}

func TestAPatchForTheFormerNodeIsNotAppliedToTheNext(t *testing.T) {
	inTrouble(t, func(w *walk) {
		w.server.remove()
		w.server.register()
		// The publisher still believes in the former Node.
		w.say(vlan(corev1.ConditionTrue, "Ready"))
		if says := w.server.shows(); strings.Contains(says, "VLANReady") {
			w.Errorf("the new Node was written before it was seen:\n%s", says)
		}
		w.expect("once it is seen")
	})
}

func TestALostAnswerIsRecordedOnce(t *testing.T) {
	inTrouble(t, func(w *walk) {
		w.server.set(func(s *server) { s.loses = true })
		w.say(vlan(corev1.ConditionFalse, "VLANInterfaceDown"))
		w.server.deliver(w.pub)
		w.server.set(func(s *server) { s.loses = false })
		time.Sleep(time.Minute)
		w.expect("after a minute")
		w.mu.Lock()
		defer w.mu.Unlock()
		if recorded := w.recorded[contract.ConditionVLANReady]; len(recorded) != 1 || recorded[0].From != "" {
			w.Errorf("recorded %v, want the transition once", recorded)
		}
	})
}

func TestAnHourWithoutAnswers(t *testing.T) {
	inTrouble(t, func(w *walk) {
		w.server.set(func(s *server) { s.hangs = true })
		before, _ := w.server.counts()
		for i := range 3600 {
			w.say(vlan(corev1.ConditionFalse, []string{"A", "B"}[i%2]))
			time.Sleep(time.Second)
		}
		requests, _ := w.server.counts()
		if sent := requests - before; sent < 3600/43-1 || sent > 3600/37+10 {
			w.Errorf("%d requests in an hour in which none was answered, want one every 40 s", sent)
		}
		w.server.set(func(s *server) { s.hangs = false })
		time.Sleep(writeTimeout + lastRetry + lastRetry/10)
		w.expect("after it")
		if _, stored := w.server.counts(); stored != 1 {
			w.Errorf("%d writes when the server was back, want 1", stored)
		}
	})
}

// Another program that gives our condition another status cannot make us write without end, and does not win.
func TestAnotherWriterIsNoReasonForAStorm(t *testing.T) {
	inTrouble(t, func(w *walk) {
		w.say(vlan(corev1.ConditionTrue, "Ready"))
		for range 6000 {
			w.server.edit(func(node *corev1.Node) {
				contract.FindNodeCondition(node, contract.ConditionVLANReady).Status = corev1.ConditionUnknown
			})
			w.server.deliver(w.pub)
			time.Sleep(100 * time.Millisecond)
		}
		if _, stored := w.server.counts(); stored > 600/5+writeBurst+2 {
			w.Errorf("%d writes in ten minutes, want one every 5 s at most", stored)
		}
		time.Sleep(writePause)
		w.expect("when the other one has given up")
	})
}

func TestRefusedAnnotationsKeepNoConditionWaiting(t *testing.T) {
	inTrouble(t, func(w *walk) {
		w.server.set(func(s *server) { s.refuseAnnotations = true })
		w.id = "{}"
		w.pub.Annotate(contract.NodeReportedIdentity, w.id)
		w.say(vlan(corev1.ConditionTrue, "Ready"))
		w.say(vlan(corev1.ConditionFalse, "VLANInterfaceDown"))
		time.Sleep(time.Second)
		if says := w.server.shows(); !strings.Contains(says, "VLANInterfaceDown") {
			w.Errorf("a second later the Node says\n%s", says)
		}
		requests, _ := w.server.counts()
		time.Sleep(time.Hour)
		w.server.deliver(w.pub)
		if again, _ := w.server.counts(); again-requests > 50 {
			w.Errorf("%d requests in an hour of refusal, want only heartbeats", again-requests)
		}
		w.server.set(func(s *server) { s.refuseAnnotations = false })
		time.Sleep(Heartbeat + Heartbeat/10)
		w.expect("a heartbeat after the refusal ended")
	})
}

// A cluster that was restored from a backup counts its versions from an older one.
func TestARestoredClusterIsBelievedAfterAHeartbeat(t *testing.T) {
	inTrouble(t, func(w *walk) {
		for range 20 {
			w.others()
		}
		w.server.deliver(w.pub)
		w.say(vlan(corev1.ConditionTrue, "Ready"))
		w.server.set(func(s *server) { s.version = 3 })
		w.server.edit(func(node *corev1.Node) {
			node.Status.Conditions = []corev1.NodeCondition{*contract.FindNodeCondition(node, corev1.NodeReady)}
		})
		w.server.deliver(w.pub)
		time.Sleep(Heartbeat + Heartbeat/10)
		w.expect("a heartbeat later")
	})
}
