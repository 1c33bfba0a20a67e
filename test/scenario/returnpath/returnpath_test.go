//go:build linux

package returnpath

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/listing"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

const (
	// attempt is how long a client waits for an answer.
	attempt = time.Second
	// pace is the time between two clients of a probe; an emulated machine has to serve them all.
	pace = 150 * time.Millisecond
	// limit is how long a repair may take.
	limit = 2 * time.Second
	// steady is how many answers in a row end an outage.
	steady = 5
)

// TestReplies asks by every way, with kube-proxy in both of its modes: unmanaged, the anti-spoofing of the default
// network eats the replies; managed, all arrive; without the agent's work again none.
func TestReplies(t *testing.T) {
	h := newHarness(t)
	h.createServices()
	fmt.Fprintf(t.Output(), "%-10s %-52s %-12s %-12s %s\n", "kube-proxy", "asked", "unmanaged", "managed",
		"after cleanup")
	for _, mode := range []string{"nftables", "iptables"} {
		h.proxyMode(mode)
		h.waitForProxy(mode)
		drops := h.dropped()
		unmanaged := h.ask(silent)
		h.diagnosed(check.Warn)
		if drops = h.dropped() - drops; drops == 0 {
			t.Errorf("%s: the upstream dropped nothing: the clients go without an answer for another reason", mode)
		}
		t.Logf("%s: the upstream dropped %d packets with a foreign source", mode, drops)
		agent := h.manage()
		managed := h.ask(answering)
		h.inside(mode)
		h.diagnosed(check.OK)
		if mode == "nftables" {
			h.disturb()
		}
		h.Must("end the agent", h.Lab.Signal(t.Context(), agent, syscall.SIGTERM))
		_, err := h.Lab.Await(t.Context(), agent, limits.Wait)
		h.Must("wait for its end", err)
		h.Run(holder, agentCleanup()...)
		cleaned := h.ask(silent)
		for i, w := range ways() {
			fmt.Fprintf(t.Output(), "%-10s %-52s %-12s %-12s %s\n", mode, w.name, word(unmanaged[i]), word(managed[i]),
				word(cleaned[i]))
			if unmanaged[i] != "" || cleaned[i] != "" {
				t.Errorf("%s: %s: unmanaged answered by %q, after cleanup by %q: the upstream is to drop these replies",
					mode, w.name, unmanaged[i], cleaned[i])
			}
			if managed[i] != w.answer {
				t.Errorf("%s: %s: managed, %q answers, want %q", mode, w.name, managed[i], w.answer)
			}
		}
	}
}

func word(answer string) string {
	if answer == "" {
		return "no answer"
	}
	return "answered"
}

// What clients are to expect.
const (
	silent    = false
	answering = true
)

// ask sends some clients on every path and returns the servers that answered, in the order of the paths. It waits until
// each path has answered if it is to, and long enough for some clients if not.
func (h *harness) ask(expected bool) []string {
	h.T.Helper()
	probes := make([]int, len(ways()))
	patience := attempt
	if expected {
		patience = limits.Wait
	}
	for i, w := range ways() {
		id, err := h.Lab.StartProbe(h.T.Context(), lab.Probe{URL: w.url(), Interval: 4 * pace, Timeout: patience})
		h.Must("probe "+w.url(), err)
		probes[i] = id
	}
	time.Sleep(2 * attempt)
	answers := make([]string, len(probes))
	for i, id := range probes {
		for late := time.Now().Add(limits.Wait); ; time.Sleep(pace) {
			attempts, err := h.Lab.ProbeResults(h.T.Context(), id)
			h.Must("results of the probe", err)
			answers[i] = answerOf(attempts)
			asked := len(attempts) > 0 && (expected == silent || answers[i] != "")
			if asked || time.Now().After(late) {
				break
			}
		}
	}
	for i, id := range probes {
		attempts, err := h.Lab.StopProbe(h.T.Context(), id)
		h.Must("stop the probe", err)
		if len(attempts) == 0 {
			h.T.Errorf("%s: no request arrived", ways()[i].name)
		}
		answers[i] = answerOf(attempts)
	}
	return answers
}

// answerOf is the server that answered last; empty if none did.
func answerOf(attempts []lab.Attempt) (server string) {
	for _, a := range attempts {
		if a.OK {
			server = strings.TrimSpace(strings.TrimPrefix(a.Body, "hello from "))
		}
	}
	return server
}

// dropped counts the packets that the routers took for spoofed (TcpExt IPReversePathFilter, net/ipv4/proc.c).
func (h *harness) dropped() int {
	h.T.Helper()
	names, values, _ := strings.Cut(h.Run(lab.Gateway, "grep", "^TcpExt:", "/proc/net/netstat"), "\n")
	i := slices.Index(strings.Fields(names), "IPReversePathFilter")
	if i < 0 {
		h.T.Fatal("the kernel does not count what its reverse path filter drops")
	}
	count, err := strconv.Atoi(strings.Fields(values)[i])
	h.Must("read a counter", err)
	return count
}

// waitForProxy waits until kube-proxy serves all ways on both nodes: a pod of the node that does not run the endpoint
// is answered within the cluster.
func (h *harness) waitForProxy(mode string) {
	h.T.Helper()
	for _, w := range ways() {
		pod := lab.PodOf(holder)
		if w.endpoint == holder {
			pod = lab.PodOf(other)
		}
		h.within(2*time.Minute, fmt.Sprintf("with kube-proxy in mode %s %s is answered by %s within the cluster", mode,
			w.url(), w.answer), func(ctx context.Context) bool {
			return strings.Contains(h.fetch(ctx, pod, w.url()), w.answer)
		})
	}
}

// manage starts the shipped agent on the holder and waits until it reports that it has made everything.
func (h *harness) manage() int {
	h.T.Helper()
	events := h.Kube.CoreV1().Events(metav1.NamespaceDefault)
	h.Must("forget earlier events", events.DeleteCollection(h.T.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}))
	id := h.Start(lab.Program{Host: holder, Name: "agent", Args: agentRun()})
	h.within(30*time.Second, "the Node has the event "+returnpath.ReasonManaged, func(ctx context.Context) bool {
		list, err := events.List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == returnpath.ReasonManaged && e.InvolvedObject.Name == holder
		})
	})
	return id
}

// inside checks what must not change within the cluster while the path of replies is managed.
func (h *harness) inside(mode string) {
	h.T.Helper()
	h.waitForProxy(mode)
	// The other node's pod asks the holder's program at its public address.
	way := fmt.Sprintf("http://%s:%d/", nodeIP, hostPort)
	h.within(limits.Wait, "a pod of the other node is answered by "+way, func(ctx context.Context) bool {
		return strings.Contains(h.fetch(ctx, lab.PodOf(other), way), "the node")
	})
	route := h.Run(holder, "ip", "route", "get", clientIP, "from", podOf(holder).String(), "iif", "pod0")
	if !strings.Contains(route, fmt.Sprintf("dev bond0.%d", defaultVLAN)) {
		h.T.Errorf("what a pod begins itself leaves by another way than the default route: %s", route)
	}
}

// diagnosed checks that a diagnosis reports the actual paths of replies: of the node's own programs and of pods.
func (h *harness) diagnosed(want check.Status) {
	h.T.Helper()
	out, err := h.Lab.Exec(h.T.Context(), holder, lab.Path("agent"), "diagnose", "--node-name", holder, "--kubeconfig",
		lab.Path("agent.kubeconfig"), "-o", "json")
	h.Must("diagnose", err)
	var document struct {
		Checks []check.Finding `json:"checks"`
	}
	h.Must(fmt.Sprintf("read the diagnosis %s%s", out.Stdout, out.Stderr), json.Unmarshal(out.Stdout, &document))
	judged := 0
	for _, f := range document.Checks {
		wanted, reports := map[check.ID]check.Status{
			check.ReversePath: check.OK, check.ReturnPath: want, check.ServiceReplies: want,
		}[f.ID]
		if !reports {
			continue
		}
		if judged++; f.Status != wanted {
			h.T.Errorf("%s is %s, want %s: %s %s (%s)", f.ID, f.Status, wanted, f.Cause, f.Because, f.Observed)
		}
	}
	if judged != 3 {
		h.T.Errorf("%d findings were judged, want 3", judged)
	}
}

// disturb takes parts of the managed way away while clients ask, and measures how long they go without an answer.
func (h *harness) disturb() {
	h.T.Helper()
	before := listing.Settled(h.T, h.listed)
	worst := time.Duration(0)
	for _, d := range []struct{ name, commands string }{
		{"rules deleted",
			"rule delete pref 1055\nrule delete pref 1055\nrule delete pref 1055\nrule delete pref 1057\n"},
		{"routing tables flushed", "route flush table 1100\nroute flush table 5196\nroute flush table 9292\n"},
		{"interface down and up", "link set bond0.100 down\nlink set bond0.100 up\n"},
	} {
		worst = max(worst, h.shortest(d.name, lab.Program{Host: holder, Args: []string{"ip", "-batch", "-"},
			Stdin: []byte(d.commands)}))
		listing.AsBefore(h.T, d.name, before, h.listed)
	}
	worst = max(worst, h.shortest("nftables table deleted",
		lab.Program{Host: holder, Args: []string{"nft", "delete", "table", "ip", "phoenixnap"}}))
	listing.AsBefore(h.T, "nftables table deleted", before, h.listed)
	fmt.Fprintf(h.T.Output(), "figure return_path_repaired_max %.2f s\n", worst.Seconds())
	if worst >= limits.Wait || limits.Late(worst, limit) {
		h.T.Errorf("a repair took %v, want at most %s", worst, limit)
	}
}

// shortest measures again, with fewer and more patient clients, what took too long: an emulated machine that has fallen
// behind its clients does not catch up.
func (h *harness) shortest(name string, disturbance lab.Program) time.Duration {
	h.T.Helper()
	best := time.Duration(math.MaxInt64)
	for _, slower := range []int{1, 2, 4, 20} {
		best = min(best, h.outage(name, disturbance, slower))
		if best < limits.Wait && !limits.Late(best, limit) {
			break
		}
	}
	return best
}

// outage is the longest time without an answer around a disturbance, over all ways; at least limits.Wait where one is
// not answered steadily before it or after it.
func (h *harness) outage(name string, disturbance lab.Program, slower int) time.Duration {
	h.T.Helper()
	probes := map[way]int{}
	times := func(d time.Duration) time.Duration { return time.Duration(slower) * d }
	for _, w := range ways() {
		id, err := h.Lab.StartProbe(h.T.Context(),
			lab.Probe{URL: w.url(), Interval: times(pace), Timeout: times(attempt)})
		h.Must("probe", err)
		probes[w] = id
	}
	wait := limits.Wait + steady*times(pace)
	from, answered := h.answered(probes, "before "+name, wait)
	if answered {
		out, err := h.Lab.ExecProgram(h.T.Context(), disturbance)
		h.Must(name, err)
		if out.Code != 0 {
			h.T.Errorf("%s: exit code %d: %s", name, out.Code, out.Stderr)
		}
		time.Sleep(attempt)
		_, answered = h.answered(probes, "after "+name, wait)
	}
	worst := time.Duration(0)
	for w, id := range probes {
		attempts, err := h.Lab.StopProbe(h.T.Context(), id)
		h.Must("stop the probe", err)
		worst = max(worst, longest(slices.DeleteFunc(attempts,
			func(a lab.Attempt) bool { return a.At.Before(from[w]) })))
	}
	if !answered {
		return max(worst, limits.Wait)
	}
	h.T.Logf("%-24s clients without an answer for %v", name, worst.Round(time.Millisecond))
	return worst
}

// answered waits until every way was answered steadily, and returns since when each is.
func (h *harness) answered(probes map[way]int, when string, wait time.Duration) (since map[way]time.Time, all bool) {
	since = map[way]time.Time{}
	for late := time.Now().Add(wait); len(since) < len(probes); time.Sleep(50 * time.Millisecond) {
		var open []string
		for w, id := range probes {
			if _, known := since[w]; known {
				continue
			}
			attempts, err := h.Lab.ProbeResults(h.T.Context(), id)
			h.Must("results of the probe", err)
			last := attempts[max(0, len(attempts)-steady):]
			failed := slices.IndexFunc(last, func(a lab.Attempt) bool { return !a.OK })
			switch {
			case failed >= 0:
				open = append(open, w.name+": "+last[failed].Error)
			case len(last) < steady:
				open = append(open, fmt.Sprintf("%s: %d answers", w.name, len(last)))
			default:
				since[w] = last[0].At
			}
		}
		if time.Now().After(late) && len(open) > 0 {
			h.T.Logf("%s: not answered steadily within %s: %s", when, wait, strings.Join(open, "; "))
			return since, false
		}
	}
	return since, true
}

// longest is the longest time from the beginning of a failed attempt to that of the next that was answered.
func longest(attempts []lab.Attempt) time.Duration {
	worst := time.Duration(0)
	var since time.Time
	for _, a := range attempts {
		switch {
		case a.OK && !since.IsZero():
			worst, since = max(worst, a.At.Sub(since)), time.Time{}
		case !a.OK && since.IsZero():
			since = a.At
		}
	}
	return worst
}
