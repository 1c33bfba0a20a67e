//go:build linux

package faults

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestFaultsAreFound makes the faults of the short run on real servers. The times are those of a machine that does
// other things, too, so only `make faults` holds them to their limits.
func TestFaultsAreFound(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	short := slices.DeleteFunc(All(), func(f Fault) bool { return !f.Short })
	var out strings.Builder
	results, err := Run(ctx, Options{Out: &out, Dir: t.TempDir(), Servers: 3, Faults: short})
	Report(&out, short, results)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := Missed(results); err != nil {
		t.Error(err)
	}
	if len(results) != len(short) {
		t.Errorf("%d results of %d faults", len(results), len(short))
	}
}

func TestFaultsAreDeclared(t *testing.T) {
	all := All()
	if len(all) < MinFaults {
		t.Errorf("%d faults, want at least %d", len(all), MinFaults)
	}
	if err := validate(all); err != nil {
		t.Error(err)
	}
	names := map[string]bool{}
	for _, f := range all {
		if names[f.Name] {
			t.Errorf("two faults are called %q", f.Name)
		}
		names[f.Name] = true
		if len(f.Make) == 0 || len(f.Repair) == 0 {
			t.Errorf("%q cannot be made and repaired", f.Name)
		}
		if f.Warns && f.Fails || f.Silent && (f.Warns || f.Fails) {
			t.Errorf("%q has traits that exclude each other", f.Name)
		}
	}
}

// TestChannels: what turns the condition is read from the condition, and what does not is not.
func TestChannels(t *testing.T) {
	severity := map[check.ID]check.Severity{}
	for _, c := range check.Catalogue() {
		severity[c.ID] = c.Severity
	}
	for _, f := range All() {
		if f.channel() == "condition" && severity[f.ID] != check.Error {
			t.Errorf("%q: %s is a %s, which never turns the condition", f.Name, f.ID, severity[f.ID])
		}
	}
}

// TestEveryCheckHasAFault names the checks that no fault of the lab is for, with the reason.
func TestEveryCheckHasAFault(t *testing.T) {
	without := map[check.ID]string{
		"PN002": "a network without a block is no fault: the first block comes with the first Service",
		"PN403": "needs a node without an address of its own, which is PN201 before",
		"PN407": "a setting of no consequence until addresses move",
		"PN504": "only while the agent manages the return path",
	}
	made := map[check.ID]bool{}
	for _, f := range All() {
		made[f.ID] = true
	}
	for _, c := range check.Catalogue() {
		if _, excused := without[c.ID]; made[c.ID] == excused {
			t.Errorf("%s (%s): fault made %t, excused %t", c.ID, c.Title, made[c.ID], excused)
		}
	}
}

func node(status corev1.ConditionStatus, reason, message string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a"}}
	if status != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: status, Reason: reason,
			Message: message}}
	}
	return n
}

func TestWatcherReportsSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(fake.NewClientset())
		w.note(node("", "", ""), time.Now())
		go func() {
			time.Sleep(3 * time.Second)
			w.note(node(corev1.ConditionFalse, "VLANInterfaceDown", "PN103: bond0.56 is down"), time.Now())
			time.Sleep(time.Second)
			// A heartbeat changes nothing of what is reported.
			w.note(node(corev1.ConditionFalse, "VLANInterfaceDown", "PN103: bond0.56 is down"), time.Now())
		}()
		begun := time.Now()
		broken := func(c condition) bool { return c.firstCause() == "PN103" && c.reason == "VLANInterfaceDown" }
		at, err := w.await(t.Context(), "srv-a", time.Minute, broken)
		if err != nil || at.Sub(begun) != 3*time.Second {
			t.Errorf("reported after %s (%v), want 3 s", at.Sub(begun), err)
		}
		time.Sleep(5 * time.Second)
		if at, err = w.await(t.Context(), "srv-a", time.Minute, broken); err != nil || at.Sub(begun) != 3*time.Second {
			t.Errorf("what has been reported for long is reported since %s (%v), want 3 s", at.Sub(begun), err)
		}
	})
}

func TestWatcherSaysWhatItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(fake.NewClientset())
		w.note(node(corev1.ConditionFalse, "GatewaySilent", "PN301: gateway 203.0.113.1 does not answer"), time.Now())
		_, err := w.await(t.Context(), "srv-a", time.Minute, isReady)
		if err == nil || !strings.Contains(err.Error(), "GatewaySilent") {
			t.Errorf("error %v does not contain the condition", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.await(ctx, "srv-a", time.Minute, isReady); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v after the end of the context", err)
		}
	})
}

func TestFirstCauseOfADiagnosis(t *testing.T) {
	document := `{"result":{"status":"WARN","firstCause":"PN105"},"checks":[{"id":"PN103","status":"OK"},{"id":"PN105","status":"WARN","reason":"UnusualMTU"}]}`
	f, err := firstCause([]byte(document), nil)
	if err != nil || f.ID != "PN105" || f.Reason != "UnusualMTU" {
		t.Errorf("first cause %+v (%v), want PN105 UnusualMTU", f, err)
	}
	if f, err = firstCause([]byte(`{"result":{"status":"OK"},"checks":[{"id":"PN103","status":"OK"}]}`),
		nil); err != nil || f.ID != "" {
		t.Errorf("a diagnosis without a fault has the first cause %+v (%v)", f, err)
	}
	if _, err = firstCause(nil, []byte("no such node")); err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("error %v does not contain the finding of diagnose", err)
	}
}

func TestSum(t *testing.T) {
	s := sum([]Result{
		{Fault: Fault{Event: true}, Found: true, Seen: time.Second, Named: time.Second, Repaired: 2 * time.Second},
		{Fault: Fault{}, Found: true, Seen: 12 * time.Second, Named: 13 * time.Second, Repaired: 11 * time.Second},
		{Fault: Fault{Slow: true}, Found: true, Seen: 14 * time.Second, Named: 40 * time.Second,
			Repaired: 35 * time.Second},
		{Fault: Fault{Event: true}, Seen: 0, Err: errors.New("not found")},
	})
	want := summary{made: 4, found: 3, seen: 14 * time.Second, repaired: 35 * time.Second, seenByEvent: time.Second,
		repairedByEvent: 2 * time.Second, membership: 40 * time.Second}
	if s != want {
		t.Errorf("sum %+v, want %+v", s, want)
	}
}

func TestLate(t *testing.T) {
	many := slices.Repeat([]Result{{Fault: Fault{Event: true}, Found: true, Seen: EventLimit, Repaired: EventLimit}},
		MinFaults)
	if err := Late(many); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := Late(many[1:]); err == nil {
		t.Error("too few faults are no error")
	}
	many[3].Repaired++
	if err := Late(many); err == nil || !strings.Contains(err.Error(), "mended_to_condition_event_max") {
		t.Errorf("beyond a limit: %v", err)
	}
}

func TestReportListsEveryFault(t *testing.T) {
	all := []Fault{{Name: "first", ID: "PN103", Reason: "VLANInterfaceDown"},
		{Name: "second", ID: "PN105", Reason: "UnusualMTU"}}
	results := []Result{{Fault: all[1], Found: true}, {Fault: all[0], Err: errors.New("not reported within 60 s")}}
	var out strings.Builder
	Report(&out, all, results)
	text := out.String()
	if first, second := strings.Index(text, "first "), strings.Index(text, "second "); first < 0 || second < first {
		t.Errorf("the table is not in the order of the faults:\n%s", text)
	}
	for _, want := range []string{"FAILED: not reported within 60 s", "figure faults_made 2 faults\n",
		"figure faults_found_as_first_cause 1 faults\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if err := Missed(results); err == nil || !strings.Contains(err.Error(), "first: not reported") {
		t.Errorf("missed: %v", err)
	}
}

func TestLongestFirst(t *testing.T) {
	sorted := longestFirst([]Fault{{Name: "event", Event: true}, {Name: "looks"}, {Name: "slow", Slow: true}})
	if sorted[0].Name != "slow" || sorted[1].Name != "looks" || sorted[2].Name != "event" {
		t.Errorf("order %v", sorted)
	}
}
