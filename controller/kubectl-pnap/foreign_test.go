package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// hostile clears the screen, sets the window title, moves the cursor, reverses the text direction, hides characters,
// forges a line and ends with an unterminated escape sequence.
const hostile = "a\x1b[2J\x1b]0;title\x07\u009b1A\u202egnp\u2066zero\u200bwidth\u007f\r\n- Service shop/web: " +
	"forged\u2028- forged, too \x1b["

// foreign writes hostile text to every place that others than the provider can write to.
func (s fixture) foreign() {
	s.Helper()
	annotations := nodenet.On(contract.NodeNetwork{ServerID: hostile, Name: hostile, ID: hostile,
		Member: true, Announcer: hostile, IPs: []netip.Addr{netip.MustParseAddr("fe80::1%\u202e\x1b[2J")}})
	s.node("aab", "", map[string]string{contract.NodePublicNetworks: hostile}, true)
	s.node("aaa", "", annotations, true, condition(contract.ConditionVLANReady, "False", hostile, hostile), condition(
		contract.ConditionAnnouncementHealthy, "Unknown", hostile, ""))
	s.service("hostile", hostile, hostile, nil, serviceCondition(contract.ServiceConditionAddressPublished, "False",
		"BlockNotAssigned", hostile))
	s.foreignEvents()
	s.foreignLedger()
	leases := s.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(s.Context(), "phoenixnap-cloud-controller-manager", metav1.GetOptions{})
	s.ok(err)
	text := hostile
	lease.Spec.HolderIdentity = &text
	_, err = leases.Update(s.Context(), lease, metav1.UpdateOptions{})
	s.ok(err)
}

// foreignEvents writes what the controller says about blocks that no IPBlock names.
func (s fixture) foreignEvents() {
	s.Helper()
	for _, reason := range []string{contract.AccountUnreadable, contract.OrphanedIPBlock} {
		_, err := s.kube.CoreV1().Events(metav1.NamespaceDefault).Create(s.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "foreign-"},
			InvolvedObject: corev1.ObjectReference{Kind: "Namespace", Name: metav1.NamespaceSystem}, Reason: reason,
			Message: hostile, LastTimestamp: metav1.NewTime(now()),
		}, metav1.CreateOptions{})
		s.ok(err)
	}
	s.Cleanup(func() {
		s.ok(s.kube.CoreV1().Events(metav1.NamespaceDefault).DeleteCollection(context.WithoutCancel(s.Context()),
			metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// foreignLedger wants to change the owner of an address in the IPBlock of the pool, which the API server refuses.
func (s fixture) foreignLedger() {
	s.Helper()
	blocks := plane.IPBlocks()
	object, err := blocks.Get(s.Context(), v1beta1.NamePrefix+poolBlock, metav1.GetOptions{})
	s.ok(err)
	(*object.Status.Allocations)[0].Services[0].Name = hostile
	if _, err = blocks.UpdateStatus(s.Context(), object, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		s.Errorf("the API server said %v, want a refusal", err)
	}
}

// harmless checks that a text only prints lines on a terminal.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: invalid UTF-8: %q", what, text)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		unprintable := strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) })
		if unprintable || strings.HasPrefix(line, "- forged") {
			t.Errorf("%s: passed on to the terminal: %q", what, line)
		}
	}
}

// Whatever conditions, annotations, events and Leases contain, the tables contain only printable text.
func TestForeignTextIsHarmlessToATerminal(t *testing.T) {
	s := newFixture(t)
	s.foreign()
	for _, args := range [][]string{{"status"}, {"status", "--output=json"}, {"status", "--output=yaml"}} {
		out, errOut, err := run(t, plane.Config(), args...)
		if !errors.Is(err, errProblems) {
			t.Fatalf("%q: %v: %s", args, err, errOut)
		}
		name := strings.Join(args, " ")
		harmless(t, name, out+errOut)
		if !strings.Contains(out, "a?[2J?]0;title??1A?gnp?zero?width?") {
			t.Errorf("%s: the foreign text is missing:\n%s", name, out)
		}
		if slices.Contains(args, "--output=json") && !json.Valid([]byte(out)) {
			t.Errorf("%s: invalid JSON: %s", name, out)
		}
	}
}

// The output of a pod is not trusted on the user's terminal.
func TestWhatAnAgentWritesIsHarmlessToATerminal(t *testing.T) {
	s := newFixture(t)
	k, port := newKubelet(t, "srv-a")
	s.agentPod("srv-a", corev1.PodRunning, port)
	k.program = filepath.Join(t.TempDir(), "agent")
	script := "#!/bin/sh\ncat <<'end'\nfound\t" + hostile + "\xe2\x80\nend\nprintf '%s' '" + hostile +
		"\xe2' >&2\nexit 1\n"
	if err := os.WriteFile(k.program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	out, errOut, err := run(t, plane.Config(), "diagnose", "node", "srv-a")
	if codeOf(err) != 1 {
		t.Errorf("the agent's exit code is lost: %v", err)
	}
	<-k.asked
	const want = "a?[2J?]0;title??1A?gnp?zero?width? \n- Service shop/web: forged - forged, too ?["
	if out != "found\t"+want+"??\n" || errOut != want+"?" {
		t.Errorf("the agent's lines are shown as\n%q\n%q\nwant\n%q", out, errOut, want)
	}
}

// The text of an error may come from the API server, from an admission webhook or from a kubelet.
func TestErrorsAreHarmlessToATerminal(t *testing.T) {
	for want, err := range map[int]error{
		exitUndetermined: errors.New(hostile), exitUsage: usageError{errors.New(hostile)},
	} {
		var text strings.Builder
		if code := exitCode(&text, err); code != want {
			t.Errorf("the code is %d, want %d", code, want)
		}
		harmless(t, "the error", text.String())
		if strings.Count(text.String(), "\n") != 1 || !strings.HasPrefix(text.String(), "kubectl pnap: a?[2J") {
			t.Errorf("the error is shown as %q", &text)
		}
	}
}
