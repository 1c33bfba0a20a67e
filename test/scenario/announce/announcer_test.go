//go:build linux

package announce

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/agentlab"
)

// soon bounds what happens by itself. In an emulated machine that shares its processor a second may be many.
const soon = 3 * time.Minute

func (h *harness) eventually(what string, holds func() bool) {
	h.T.Helper()
	for deadline := time.Now().Add(soon); !holds(); {
		if time.Now().After(deadline) {
			h.T.Fatalf("not within %s: %s", soon, what)
		}
		<-time.After(200 * time.Millisecond)
	}
}

var replyPattern = regexp.MustCompile(`(?i)\[([0-9a-f:]{17})\]`)

// answerers asks from the gateway and returns the servers that answer; another machine is given by its hardware
// address.
func (h *harness) answerers(address netip.Addr) []string {
	h.T.Helper()
	out, err := h.Lab.Exec(h.T.Context(), lab.Gateway, "busybox", "arping", "-c", "1", "-w", "1", "-I", gatewayLink,
		address.String())
	h.Must("ask for "+address.String(), err)
	var found []string
	for _, match := range replyPattern.FindAllStringSubmatch(string(out.Stdout), -1) {
		found = append(found, h.nameOf(strings.ToLower(match[1])))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// nameOf names the server with a hardware address.
func (h *harness) nameOf(mac string) string {
	h.T.Helper()
	for _, s := range h.Servers {
		if h.macs[s.Name] == "" {
			h.macs[s.Name] = strings.TrimSpace(h.Sh(s.Name, "cat /sys/class/net/"+publicLink+"/address"))
		}
		if h.macs[s.Name] == mac {
			return s.Name
		}
	}
	return mac
}

// owner waits until one server other than some answers for an address, and the view shows it, and returns that server.
func (h *harness) owner(address netip.Addr, but ...string) (owner string) {
	h.T.Helper()
	h.eventually(fmt.Sprintf("one server other than %q answers for %s", but, address), func() bool {
		found := h.answerers(address)
		if len(found) != 1 || slices.Contains(but, found[0]) || h.view().Owners[address].Node != found[0] {
			return false
		}
		owner = found[0]
		return true
	})
	return owner
}

// view is what the ConfigMap says.
func (h *harness) view() *election.View {
	h.T.Helper()
	object, err := h.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(h.T.Context(), contract.AnnouncerView,
		metav1.GetOptions{})
	if err != nil {
		return &election.View{}
	}
	v, err := election.ParseView(object.Data[agentlab.NetworkID])
	h.Must("read the view", err)
	return v
}

// members waits until all servers take part.
func (h *harness) members() {
	h.T.Helper()
	h.eventually("all servers take part", func() bool { return len(h.view().Members) == len(h.Servers) })
}

func (h *harness) condition(server string) corev1.NodeCondition {
	h.T.Helper()
	node, err := h.Kube.CoreV1().Nodes().Get(h.T.Context(), server, metav1.GetOptions{})
	h.Must("read Node "+server, err)
	if c := contract.FindNodeCondition(node, contract.ConditionAnnouncementHealthy); c != nil {
		return *c
	}
	return corev1.NodeCondition{}
}

// recorded waits for an event on an object, of any name where it is empty, whose message contains all of some words.
func (h *harness) recorded(reason, kind, name string, words ...string) {
	h.T.Helper()
	h.eventually(fmt.Sprintf("an event %s on %s %s with %q", reason, kind, name, words), func() bool {
		all, err := h.Kube.CoreV1().Events(metav1.NamespaceAll).List(h.T.Context(), metav1.ListOptions{})
		h.Must("list events", err)
		return slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Kind == kind &&
				(name == "" || e.InvolvedObject.Name == name) &&
				!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) })
		})
	})
}

// undisturbed checks that an address stays where it is. An agent that does not run for three intervals is rightly taken
// for dead, so a check that fails is repeated if an agent says that its heartbeat was late, and only then.
func (h *harness) undisturbed(check func() error) {
	h.T.Helper()
	for range 5 {
		late := h.lateHeartbeats()
		err := check()
		if err == nil {
			return
		}
		if h.lateHeartbeats() == late {
			h.T.Fatal(err)
		}
		h.T.Logf("again, because an agent did not run for some time: %v", err)
		h.members()
	}
	h.T.Fatal("each time an agent did not run for some time: this machine is too busy for the test")
}

// lateHeartbeats is how many heartbeats of the agents were late since the test began.
func (h *harness) lateHeartbeats() (late int) {
	h.T.Helper()
	for _, s := range h.Servers {
		late += h.logged(s.Name, "A heartbeat was sent late")
	}
	return late
}

// logged is how often the agents of a server have logged something.
func (h *harness) logged(server, text string) int {
	h.T.Helper()
	log, err := h.Lab.Log(h.T.Context(), "agent-"+server)
	h.Must("read the log of the agents of "+server, err)
	return strings.Count(string(log), text)
}

func (h *harness) signal(server string, signal syscall.Signal) {
	h.T.Helper()
	h.Must("signal the agent of "+server, h.Lab.Signal(h.T.Context(), h.agents[server], signal))
}

func (h *harness) ended(server string) lab.Process {
	h.T.Helper()
	p, err := h.Lab.Await(h.T.Context(), h.agents[server], soon)
	h.Must("await the agent of "+server, err)
	return p
}

func (h *harness) annotate(server string, annotations map[string]any) {
	h.T.Helper()
	h.patchNode(server, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

func (h *harness) patchNode(server string, change map[string]any) {
	h.T.Helper()
	patch, err := json.Marshal(change)
	h.Must("patch", err)
	_, err = h.Kube.CoreV1().Nodes().Patch(h.T.Context(), server, types.MergePatchType, patch, metav1.PatchOptions{})
	h.Must("patch Node "+server, err)
}

// TestAgentsAnnounce breaks one thing after the other. One set of servers serves all cases, each of which repairs what
// it broke.
func TestAgentsAnnounce(t *testing.T) {
	h := newHarness(t, 3)
	for _, s := range h.Servers {
		h.agent(s.Name)
	}
	h.members()
	addresses := []netip.Addr{h.serve("one"), h.serve("two"), h.serve("three")}
	for _, step := range []struct {
		name string
		do   func(*harness, []netip.Addr)
	}{
		{"every address has one owner", (*harness).everyAddressHasOneOwner},
		{"its agent is updated", (*harness).updated},
		{"its agent is killed", (*harness).killed},
		{"its agent is stopped and goes on", (*harness).stopped},
		{"its VLAN interface is down", (*harness).linkDown},
		{"it is not heard", (*harness).notHeard},
		{"it hears no one", (*harness).hearsNoOne},
		{"the VLAN is split", (*harness).split},
		{"it and another one do not hear each other", (*harness).pairCut},
		{"it is cordoned", (*harness).cordoned},
		{"it is asked to hand over", (*harness).handOver},
		{"its agent is asked to end", (*harness).askedToEnd},
		{"an agent elsewhere has its name", (*harness).twice},
		{"another machine answers", (*harness).foreign},
		{"it is the only one to lose the API server", (*harness).apiLost},
		{"the API server is away", (*harness).apiAway},
		{"an older view is restored", (*harness).restored},
		{"the clock is set", (*harness).clockJumps},
		{"an agent has no key", (*harness).noKey},
		{"a Service goes", (*harness).serviceGoes},
		{"no agent forgot its network", (*harness).nothingForgotten},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			outer := h.T
			h.T = t
			defer func() { h.T = outer }()
			step.do(h, addresses)
		}) {
			t.FailNow()
		}
	}
}

// everyAddressHasOneOwner, in user space: no interface carries an address.
func (h *harness) everyAddressHasOneOwner(addresses []netip.Addr) {
	for _, a := range addresses {
		h.owner(a)
		for _, s := range h.Servers {
			if carried := h.IP(s.Name, "-4", "address", "show"); strings.Contains(carried, a.String()) {
				h.T.Errorf("an interface of %s carries %s:\n%s", s.Name, a, carried)
			}
		}
	}
	for _, s := range h.Servers {
		h.eventually("Node "+s.Name+" finds the announcement healthy",
			func() bool { return h.condition(s.Name).Status == corev1.ConditionTrue })
	}
}

// updated: an agent that starts beside the holder's continues when that ends. No address moves, nothing is written.
func (h *harness) updated(addresses []netip.Addr) {
	h.undisturbed(func() error { return h.update(addresses[0]) })
	for _, a := range addresses {
		h.owner(a)
	}
}

// update updates the agent of the node that announces an address. It is an error if the view is another one afterwards.
func (h *harness) update(address netip.Addr) error {
	h.T.Helper()
	holder := h.owner(address)
	before := h.view()
	const ready = "Ready to continue in place of the earlier agent"
	updates := h.logged(holder, ready)
	earlier := h.agents[holder]
	h.agent(holder)
	h.eventually("the later agent of "+holder+" stands by", func() bool { return h.logged(holder, ready) > updates })
	h.Must("end the earlier agent", h.Lab.Signal(h.T.Context(), earlier, syscall.SIGTERM))
	if p, err := h.Lab.Await(h.T.Context(), earlier, soon); err != nil || !p.Exited || p.Code != 0 {
		h.T.Errorf("the earlier agent of %s ended with %+v, %v", holder, p, err)
	}
	h.eventually("the later agent of "+holder+" answers, or the view has changed", func() bool {
		return slices.Equal(h.answerers(address), []string{holder}) || h.view().Number != before.Number
	})
	<-time.After(10 * time.Second) // three times what makes a member silent
	if after := h.view(); after.Number != before.Number {
		return fmt.Errorf("the view %d became %d: %+v", before.Number, after.Number, after)
	}
	return nil
}

func (h *harness) killed(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	h.signal(holder, syscall.SIGKILL)
	next := h.owner(addresses[0], holder)
	h.recorded("AddressTakenOver", "Service", "one", "Node "+next, "Node "+holder)
	h.recorded("AnnouncerUnreachable", "Node", "", "Node "+holder)
	h.agent(holder)
	h.members()
}

// stopped: a member that wakes up and has missed a takeover stays silent. A long run stops it for minutes.
func (h *harness) stopped(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	begun := time.Now()
	h.signal(holder, syscall.SIGSTOP)
	next := h.owner(addresses[0], holder)
	<-time.After(min(time.Duration(seeds.Count(h.T, 10))*time.Second, 3*time.Minute) - time.Since(begun))
	h.signal(holder, syscall.SIGCONT)
	for range 8 {
		if found := h.answerers(addresses[0]); len(found) > 1 {
			h.T.Errorf("after %s woke up %q answer; %s had taken over", holder, found, next)
		}
	}
	h.members()
}

func (h *harness) linkDown(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	h.Must("break", h.Lab.Break(h.T.Context(), holder, lab.LinkDown))
	h.owner(addresses[0], holder)
	h.Must("repair", h.Lab.Repair(h.T.Context(), holder))
	h.members()
}

// cordoned: an owner that is cordoned, as kubectl drain does first, keeps its address.
func (h *harness) cordoned(addresses []netip.Addr) {
	h.undisturbed(func() error {
		holder := h.owner(addresses[0])
		h.patchNode(holder, map[string]any{"spec": map[string]any{"unschedulable": true}})
		<-time.After(5 * time.Second) // what an exclusion takes, many times over
		now := h.owner(addresses[0])
		h.patchNode(holder, map[string]any{"spec": map[string]any{"unschedulable": nil}})
		if now != holder {
			return fmt.Errorf("%s went from %s to %s", addresses[0], holder, now)
		}
		return nil
	})
}

func (h *harness) handOver(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	h.annotate(holder, map[string]any{contract.NodeHandOver: "true"})
	for _, a := range addresses {
		h.owner(a, holder)
	}
	h.annotate(holder, map[string]any{contract.NodeHandOver: nil})
}

func (h *harness) askedToEnd(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	h.signal(holder, syscall.SIGTERM)
	if p := h.ended(holder); !p.Exited || p.Code != 0 {
		h.T.Errorf("the agent of %s ended with %+v", holder, p)
	}
	h.owner(addresses[0], holder)
	h.agent(holder)
	h.members()
}

// twice: on a server without an agent one is started by the name of the holder, whose own is silent for as long as it
// is heard. It announces nothing, as the server is not the one of the Node.
func (h *harness) twice(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	elsewhere := h.others(holder)[0]
	h.signal(elsewhere, syscall.SIGTERM)
	h.ended(elsewhere)
	h.agents[elsewhere] = h.agentAs(elsewhere, holder)
	h.recorded(speaker.EventDuplicate, "Node", holder)
	for range 8 {
		h.single(addresses[0])
	}
	for _, a := range addresses {
		h.owner(a, holder, elsewhere)
	}
	h.signal(elsewhere, syscall.SIGKILL)
	h.ended(elsewhere)
	h.agent(elsewhere)
	h.members()
	for _, a := range addresses {
		h.owner(a)
	}
}

// foreign: a machine that is no Node answers, too. It is reported, and not fought.
func (h *harness) foreign(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	stranger := h.Servers[(slices.IndexFunc(h.Servers,
		func(s lab.Server) bool { return s.Name == holder })+1)%len(h.Servers)].Name
	h.IP(stranger, "address", "add", addresses[0].String()+"/32", "dev", publicLink)
	h.eventually("the kernel of "+stranger+" answers beside "+holder,
		func() bool { return len(h.answerers(addresses[0])) == 2 })
	h.eventually("Node "+stranger+" reports that it carries the address", func() bool {
		c := h.condition(stranger)
		return c.Status == corev1.ConditionFalse && c.Reason == "StaleAddress"
	})
	h.eventually("an agent still answers: it does not give way to a machine that took an address", func() bool {
		found := h.answerers(addresses[0])
		return len(found) == 2 && slices.Contains(found, h.view().Owners[addresses[0]].Node)
	})
	h.IP(stranger, "address", "delete", addresses[0].String()+"/32", "dev", publicLink)
	h.owner(addresses[0])
	h.eventually("Node "+stranger+" is healthy again", func() bool {
		return h.condition(stranger).Status == corev1.ConditionTrue
	})
}

// apiAway: without the API server everything stays as it is.
func (h *harness) apiAway(addresses []netip.Addr) {
	for _, a := range addresses {
		h.owner(a)
	}
	for _, s := range h.Servers {
		h.IP(s.Name, "link", "set", privateLink, "down")
	}
	before := map[netip.Addr]string{} // this is what they last agreed on
	for a, owner := range h.view().Owners {
		before[a] = owner.Node
	}
	// An owner that no majority hears for a moment, in a machine that shares its processor, is silent for a moment.
	answered := map[netip.Addr]int{}
	for range 3 {
		<-time.After(2 * time.Second)
		for _, a := range addresses {
			found := h.answerers(a)
			if len(found) > 0 && !slices.Equal(found, []string{before[a]}) {
				h.T.Errorf("without the API server %q answer for %s, which was %s's", found, a, before[a])
			}
			answered[a] += len(found)
		}
	}
	for _, a := range addresses {
		if answered[a] == 0 {
			h.T.Errorf("without the API server no node answered for %s, which was %s's", a, before[a])
		}
	}
	for _, s := range h.Servers {
		h.IP(s.Name, "link", "set", privateLink, "up")
	}
	h.members()
}

// noKey: the Secret is deleted, and an agent restarts. The others keep their key; it waits for one, and takes part as
// soon as the Secret is restored.
func (h *harness) noKey(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	h.Must("delete the key", h.Kube.CoreV1().Secrets(metav1.NamespaceSystem).Delete(h.T.Context(),
		contract.AnnouncerSecret, metav1.DeleteOptions{}))
	h.signal(holder, syscall.SIGTERM)
	h.ended(holder)
	h.agent(holder)
	h.eventually("Node "+holder+" reports that it has no key", func() bool {
		c := h.condition(holder)
		return c.Status == corev1.ConditionFalse && c.Reason == "NoHeartbeatKey"
	})
	for _, a := range addresses {
		h.owner(a, holder)
	}
	h.createKey()
	h.members()
}

// nothingForgotten: the agents that started again did not report what they did not know yet.
func (h *harness) nothingForgotten([]netip.Addr) {
	all, err := h.Kube.CoreV1().Events(metav1.NamespaceAll).List(h.T.Context(), metav1.ListOptions{})
	h.Must("list events", err)
	for _, e := range all.Items {
		if e.Reason == check.ReasonWaiting || e.Reason == check.ReasonUnreached {
			h.T.Errorf("Node %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

func (h *harness) serviceGoes(addresses []netip.Addr) {
	h.owner(addresses[2])
	h.Must("delete a Service", h.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(h.T.Context(), "three",
		metav1.DeleteOptions{}))
	h.eventually("no node answers for "+addresses[2].String(), func() bool {
		return len(h.answerers(addresses[2])) == 0
	})
	h.eventually("the view has it no more", func() bool { _, has := h.view().Owners[addresses[2]]; return !has })
}
