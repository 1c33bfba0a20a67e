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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/seeds"
)

// soon bounds what happens by itself. In an emulated machine that shares its processor a second may be many.
const soon = 90 * time.Second

func (r *rig) eventually(what string, holds func() bool) {
	r.T.Helper()
	for deadline := time.Now().Add(soon); !holds(); {
		if time.Now().After(deadline) {
			r.T.Fatalf("not within %s: %s", soon, what)
		}
		<-time.After(200 * time.Millisecond)
	}
}

var replyPattern = regexp.MustCompile(`(?i)\[([0-9a-f:]{17})\]`)

// answerers asks from the gateway and returns the servers that answer; another machine is given by its hardware
// address.
func (r *rig) answerers(address netip.Addr) []string {
	r.T.Helper()
	out, err := r.Lab.Exec(r.T.Context(), lab.Gateway, "busybox", "arping", "-c", "1", "-w", "1", "-I", gatewayLink,
		address.String())
	r.Must("ask for "+address.String(), err)
	var found []string
	for _, match := range replyPattern.FindAllStringSubmatch(string(out.Stdout), -1) {
		found = append(found, r.nameOf(strings.ToLower(match[1])))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// nameOf names the server with a hardware address.
func (r *rig) nameOf(mac string) string {
	r.T.Helper()
	for _, s := range r.servers {
		if r.macs[s.Name] == "" {
			r.macs[s.Name] = strings.TrimSpace(r.Sh(s.Name, "cat /sys/class/net/"+publicLink+"/address"))
		}
		if r.macs[s.Name] == mac {
			return s.Name
		}
	}
	return mac
}

// owner waits until one server other than some answers for an address, and the view shows it, and returns that server.
func (r *rig) owner(address netip.Addr, but ...string) (owner string) {
	r.T.Helper()
	r.eventually(fmt.Sprintf("one server other than %q answers for %s", but, address), func() bool {
		found := r.answerers(address)
		if len(found) != 1 || slices.Contains(but, found[0]) || r.view().Owners[address].Node != found[0] {
			return false
		}
		owner = found[0]
		return true
	})
	return owner
}

// view is what the ConfigMap says.
func (r *rig) view() *election.View {
	r.T.Helper()
	object, err := r.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(r.T.Context(), contract.AnnouncerView,
		metav1.GetOptions{})
	if err != nil {
		return &election.View{}
	}
	v, err := election.ParseView(object.Data[networkID])
	r.Must("read the view", err)
	return v
}

// members waits until all servers take part.
func (r *rig) members() {
	r.T.Helper()
	r.eventually("all servers take part", func() bool { return len(r.view().Members) == len(r.servers) })
}

func (r *rig) condition(server string) corev1.NodeCondition {
	r.T.Helper()
	node, err := r.kube.CoreV1().Nodes().Get(r.T.Context(), server, metav1.GetOptions{})
	r.Must("read Node "+server, err)
	if c := contract.FindNodeCondition(node, contract.ConditionAnnouncementHealthy); c != nil {
		return *c
	}
	return corev1.NodeCondition{}
}

// told waits for an event on an object, of any name where it is empty, whose message contains all of some words.
func (r *rig) told(reason, kind, name string, words ...string) {
	r.T.Helper()
	r.eventually(fmt.Sprintf("an event %s on %s %s with %q", reason, kind, name, words), func() bool {
		all, err := r.kube.CoreV1().Events(metav1.NamespaceAll).List(r.T.Context(), metav1.ListOptions{})
		r.Must("list events", err)
		return slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Kind == kind &&
				(name == "" || e.InvolvedObject.Name == name) &&
				!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) })
		})
	})
}

func (r *rig) signal(server string, signal syscall.Signal) {
	r.T.Helper()
	r.Must("signal the agent of "+server, r.Lab.Signal(r.T.Context(), r.agents[server], signal))
}

func (r *rig) ended(server string) lab.Process {
	r.T.Helper()
	p, err := r.Lab.Await(r.T.Context(), r.agents[server], soon)
	r.Must("await the agent of "+server, err)
	return p
}

func (r *rig) annotate(server string, annotations map[string]any) {
	r.T.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	r.Must("patch", err)
	_, err = r.kube.CoreV1().Nodes().Patch(r.T.Context(), server, types.MergePatchType, patch, metav1.PatchOptions{})
	r.Must("annotate Node "+server, err)
}

// TestAgentsAnnounce breaks one thing after the other. One set of servers serves all cases, each of which repairs what
// it broke.
func TestAgentsAnnounce(t *testing.T) {
	r := newRig(t, 3)
	for _, s := range r.servers {
		r.agent(s.Name, keyFlag)
	}
	r.members()
	addresses := []netip.Addr{r.serve("one"), r.serve("two"), r.serve("three")}
	for _, step := range []struct {
		name string
		do   func(*rig, []netip.Addr)
	}{
		{"every address has one owner", (*rig).everyAddressHasOneOwner},
		{"its agent is killed", (*rig).killed},
		{"its agent is stopped and goes on", (*rig).stopped},
		{"its VLAN interface is down", (*rig).linkDown},
		{"it is not heard", (*rig).notHeard},
		{"it hears nobody", (*rig).hearsNobody},
		{"the VLAN is split", (*rig).split},
		{"it and another one do not hear each other", (*rig).pairCut},
		{"it is asked to hand over", (*rig).handOver},
		{"its agent is told to end", (*rig).toldToEnd},
		{"an agent elsewhere has its name", (*rig).twice},
		{"another machine answers", (*rig).foreign},
		{"it alone loses the API server", (*rig).apiLost},
		{"the API server is away", (*rig).apiAway},
		{"an older view is restored", (*rig).restored},
		{"the clock is set", (*rig).clockJumps},
		{"an agent has no key", (*rig).noKey},
		{"a Service goes", (*rig).serviceGoes},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			outer := r.T
			r.T = t
			defer func() { r.T = outer }()
			step.do(r, addresses)
		}) {
			t.FailNow()
		}
	}
}

// everyAddressHasOneOwner, in user space: no interface carries an address.
func (r *rig) everyAddressHasOneOwner(addresses []netip.Addr) {
	for _, a := range addresses {
		r.owner(a)
		for _, s := range r.servers {
			if carried := r.IP(s.Name, "-4", "address", "show"); strings.Contains(carried, a.String()) {
				r.T.Errorf("an interface of %s carries %s:\n%s", s.Name, a, carried)
			}
		}
	}
	for _, s := range r.servers {
		r.eventually("Node "+s.Name+" finds the announcement healthy",
			func() bool { return r.condition(s.Name).Status == corev1.ConditionTrue })
	}
}

func (r *rig) killed(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	r.signal(holder, syscall.SIGKILL)
	next := r.owner(addresses[0], holder)
	r.told("AddressTakenOver", "Service", "one", "Node "+next, "Node "+holder)
	r.told("AnnouncerUnheard", "Node", "", "Node "+holder)
	r.agent(holder, keyFlag)
	r.members()
}

// stopped: a member that wakes up and has missed a takeover stays silent. A long run stops it for minutes.
func (r *rig) stopped(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	begun := time.Now()
	r.signal(holder, syscall.SIGSTOP)
	next := r.owner(addresses[0], holder)
	<-time.After(min(time.Duration(seeds.Count(r.T, 10))*time.Second, 3*time.Minute) - time.Since(begun))
	r.signal(holder, syscall.SIGCONT)
	for range 8 {
		if found := r.answerers(addresses[0]); len(found) > 1 {
			r.T.Errorf("after %s woke up %q answer; %s had taken over", holder, found, next)
		}
	}
	r.members()
}

func (r *rig) linkDown(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	r.Must("break", r.Lab.Break(r.T.Context(), holder, lab.LinkDown))
	r.owner(addresses[0], holder)
	r.Must("repair", r.Lab.Repair(r.T.Context(), holder))
	r.members()
}

func (r *rig) handOver(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	r.annotate(holder, map[string]any{contract.NodeHandOver: "true"})
	for _, a := range addresses {
		r.owner(a, holder)
	}
	r.annotate(holder, map[string]any{contract.NodeHandOver: nil})
}

func (r *rig) toldToEnd(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	r.signal(holder, syscall.SIGTERM)
	if p := r.ended(holder); !p.Exited || p.Code != 0 {
		r.T.Errorf("the agent of %s ended with %+v", holder, p)
	}
	r.owner(addresses[0], holder)
	r.agent(holder, keyFlag)
	r.members()
}

// twice: on a server without an agent one is started by the name of the holder, whose own is silent for as long as it
// is heard. It announces nothing, as the server is not the one of the Node.
func (r *rig) twice(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	elsewhere := r.others(holder)[0]
	r.signal(elsewhere, syscall.SIGTERM)
	r.ended(elsewhere)
	r.agents[elsewhere] = r.agentAs(elsewhere, holder, keyFlag)
	r.told(speaker.EventTwice, "Node", holder)
	for range 8 {
		r.single(addresses[0])
	}
	for _, a := range addresses {
		r.owner(a, holder, elsewhere)
	}
	r.signal(elsewhere, syscall.SIGKILL)
	r.ended(elsewhere)
	r.agent(elsewhere, keyFlag)
	r.members()
	for _, a := range addresses {
		r.owner(a)
	}
}

// foreign: a machine that is no Node answers, too. It is reported, and not fought.
func (r *rig) foreign(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	stranger := r.servers[(slices.IndexFunc(r.servers,
		func(s lab.Server) bool { return s.Name == holder })+1)%len(r.servers)].Name
	r.IP(stranger, "address", "add", addresses[0].String()+"/32", "dev", publicLink)
	r.eventually("the kernel of "+stranger+" answers beside "+holder,
		func() bool { return len(r.answerers(addresses[0])) == 2 })
	r.eventually("Node "+stranger+" reports that it carries the address", func() bool {
		c := r.condition(stranger)
		return c.Status == corev1.ConditionFalse && c.Reason == "StaleAddress"
	})
	r.eventually("an agent still answers: it does not give way to a machine that took an address", func() bool {
		found := r.answerers(addresses[0])
		return len(found) == 2 && slices.Contains(found, r.view().Owners[addresses[0]].Node)
	})
	r.IP(stranger, "address", "delete", addresses[0].String()+"/32", "dev", publicLink)
	r.owner(addresses[0])
	r.eventually("Node "+stranger+" is healthy again", func() bool {
		return r.condition(stranger).Status == corev1.ConditionTrue
	})
}

// apiAway: without the API server everything stays as it is.
func (r *rig) apiAway(addresses []netip.Addr) {
	for _, a := range addresses {
		r.owner(a)
	}
	for _, s := range r.servers {
		r.IP(s.Name, "link", "set", privateLink, "down")
	}
	before := map[netip.Addr]string{} // this is what they last agreed on
	for a, owner := range r.view().Owners {
		before[a] = owner.Node
	}
	// An owner that no majority hears for a moment, in a machine that shares its processor, is silent for a moment.
	answered := map[netip.Addr]int{}
	for range 3 {
		<-time.After(2 * time.Second)
		for _, a := range addresses {
			found := r.answerers(a)
			if len(found) > 0 && !slices.Equal(found, []string{before[a]}) {
				r.T.Errorf("without the API server %q answer for %s, which was %s's", found, a, before[a])
			}
			answered[a] += len(found)
		}
	}
	for _, a := range addresses {
		if answered[a] == 0 {
			r.T.Errorf("without the API server no node answered for %s, which was %s's", a, before[a])
		}
	}
	for _, s := range r.servers {
		r.IP(s.Name, "link", "set", privateLink, "up")
	}
	r.members()
}

func (r *rig) noKey(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	r.signal(holder, syscall.SIGTERM)
	r.ended(holder)
	r.agent(holder)
	r.eventually("Node "+holder+" reports that it has no key", func() bool {
		c := r.condition(holder)
		return c.Status == corev1.ConditionFalse && c.Reason == "NoHeartbeatKey"
	})
	for _, a := range addresses {
		r.owner(a, holder)
	}
	r.signal(holder, syscall.SIGTERM)
	r.ended(holder)
	r.agent(holder, keyFlag)
	r.members()
}

func (r *rig) serviceGoes(addresses []netip.Addr) {
	r.owner(addresses[2])
	r.Must("delete a Service", r.kube.CoreV1().Services(metav1.NamespaceDefault).Delete(r.T.Context(), "three",
		metav1.DeleteOptions{}))
	r.eventually("no node answers for "+addresses[2].String(), func() bool {
		return len(r.answerers(addresses[2])) == 0
	})
	r.eventually("the view has it no more", func() bool { _, has := r.view().Owners[addresses[2]]; return !has })
}
