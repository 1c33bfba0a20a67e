//go:build linux

package announce

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/labtest"
)

// way is that of frames from one server to another.
type way struct{ from, to string }

// cut has the switch drop frames on some ways between servers. Gateway and API server are reached by all still.
func (h *harness) cut(ways ...way) {
	h.T.Helper()
	var rules strings.Builder
	for _, w := range ways {
		fmt.Fprintf(&rules, "iifname \"p-%s\" oifname \"p-%s\" counter drop\n", w.from, w.to)
	}
	h.nft("table bridge cut {\nchain forward {\ntype filter hook forward priority 0;\n" + rules.String() + "}\n}")
	h.T.Cleanup(h.uncut)
}

// reconnect has the switch forward everything again. It is an error if nothing was dropped on a path.
func (h *harness) reconnect() {
	h.T.Helper()
	out, err := h.Lab.Exec(h.T.Context(), lab.Switch, "nft", "list", "table", "bridge", "cut")
	h.Must("nft", err)
	if rules := string(out.Stdout); out.Code != 0 || !strings.Contains(rules, "drop") ||
		strings.Contains(rules, "counter packets 0 ") {
		h.T.Errorf("on some way nothing was cut:\n%s%s", rules, out.Stderr)
	}
	h.uncut()
	h.members()
}

// uncut removes what cut made, if it exists.
func (h *harness) uncut() { h.nft("table bridge cut {}\ndelete table bridge cut") }

func (h *harness) nft(rules string) {
	h.T.Helper()
	out, err := h.Lab.ExecProgram(h.T.Context(), lab.Program{Host: lab.Switch, Args: []string{"nft", "-f", "-"},
		Stdin: []byte(rules + "\n")})
	h.Must("nft", err)
	if out.Code != 0 {
		h.T.Fatalf("nft: %s\n%s", out.Stderr, rules)
	}
}

// others are all servers but one.
func (h *harness) others(but string) []string {
	return slices.DeleteFunc(labtest.Names(h.Servers), func(name string) bool { return name == but })
}

// between are the ways from one server to others, and those back.
func between(server string, others []string) (there, back []way) {
	for _, o := range others {
		there, back = append(there, way{server, o}), append(back, way{o, server})
	}
	return there, back
}

// succeeded waits until another server than one answers for an address. Until then, and for some time afterwards, no
// two do.
func (h *harness) succeeded(address netip.Addr, holder string) {
	h.T.Helper()
	h.eventually(fmt.Sprintf("another server than %s answers for %s", holder, address), func() bool {
		return h.single(address) != holder && h.view().Owners[address].Node != holder && h.single(address) != ""
	})
	for range 5 {
		if got := h.single(address); got == holder {
			h.T.Errorf("%s answers for %s again, of which it is not the owner", holder, address)
		}
	}
}

// single is the only server that answers for an address, empty when none does. That two do is an error.
func (h *harness) single(address netip.Addr) string {
	h.T.Helper()
	found := h.answerers(address)
	switch len(found) {
	case 0:
		return ""
	case 1:
		return found[0]
	default:
		h.T.Errorf("%q answer for %s", found, address)
		return ""
	}
}

// stays: for some time only the server answers for the address. In a machine that shares its processor it may be
// silent for a moment.
func (h *harness) stays(address netip.Addr, holder string, beats int) error {
	h.T.Helper()
	answered := 0
	for range beats {
		switch got := h.single(address); got {
		case "":
		case holder:
			answered++
		default:
			return fmt.Errorf("%s answers for %s, which is %s's", got, address, holder)
		}
	}
	if answered < beats/2 {
		return fmt.Errorf("%s answered %d of %d requests for %s", holder, answered, beats, address)
	}
	return nil
}

// notHeard: others do not hear the holder, which hears them.
func (h *harness) notHeard(addresses []netip.Addr) {
	h.cutOff(addresses[0], func(there, _ []way) []way { return there })
	h.reconnect()
}

// hearsNoOne: the holder does not hear the others, which hear it.
func (h *harness) hearsNoOne(addresses []netip.Addr) {
	h.cutOff(addresses[0], func(_, back []way) []way { return back })
	h.reconnect()
}

// split: the VLAN falls into two parts, each of which reaches the gateway and the API server; the greater one
// continues.
func (h *harness) split(addresses []netip.Addr) {
	holder := h.cutOff(addresses[0], func(there, back []way) []way { return slices.Concat(there, back) })
	for _, a := range addresses {
		h.owner(a, holder)
	}
	h.reconnect()
}

// cutOff cuts some of the ways between the holder of an address and the others, until one of them has succeeded it.
func (h *harness) cutOff(address netip.Addr, some func(there, back []way) []way) (holder string) {
	h.T.Helper()
	holder = h.owner(address)
	h.cut(some(between(holder, h.others(holder)))...)
	h.succeeded(address, holder)
	return holder
}

// pairCut: the holder and another server do not hear each other. Each of them is a majority with the third.
func (h *harness) pairCut(addresses []netip.Addr) {
	h.undisturbed(func() error {
		holder := h.owner(addresses[0])
		there, back := between(holder, h.others(holder)[:1])
		h.cut(slices.Concat(there, back)...)
		err := h.stays(addresses[0], holder, 8)
		h.reconnect()
		return err
	})
}

// apiLost: only the holder loses the API server. It continues while the view does not change.
func (h *harness) apiLost(addresses []netip.Addr) {
	h.undisturbed(func() error {
		holder := h.owner(addresses[0])
		h.IP(holder, "link", "set", privateLink, "down")
		err := h.stays(addresses[0], holder, 8)
		h.IP(holder, "link", "set", privateLink, "up")
		h.members()
		return err
	})
}

// restored: a user writes back an older view, by which another server owns the address.
func (h *harness) restored(addresses []netip.Addr) {
	holder := h.owner(addresses[0])
	views := h.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	old, err := views.Get(h.T.Context(), contract.AnnouncerView, metav1.GetOptions{})
	h.Must("read the view", err)
	h.annotate(holder, map[string]any{contract.NodeHandOver: "true"})
	h.succeeded(addresses[0], holder)
	number := h.view().Number
	old.ResourceVersion = ""
	_, err = views.Update(h.T.Context(), old, metav1.UpdateOptions{})
	h.Must("write an older view", err)
	h.eventually("the agents write a newer view than all before",
		func() bool { return h.single(addresses[0]) != holder && h.view().Number > number })
	h.annotate(holder, map[string]any{contract.NodeHandOver: nil})
	h.owner(addresses[0])
	h.members()
}

// clockJumps: the wall clock is set, an hour ahead and an hour back, where a certificate of the API server is not valid
// yet.
func (h *harness) clockJumps(addresses []netip.Addr) {
	const bootID = "/proc/sys/kernel/random/boot_id"
	own, err := os.ReadFile(bootID)
	h.Must("which kernel this is", err)
	if h.Run(lab.Gateway, "busybox", "cat", bootID) == string(own) {
		h.T.Log("the lab is on the kernel of this machine, whose clock is not changed")
		return
	}
	h.undisturbed(func() error {
		holder := h.owner(addresses[0])
		var moved error
		for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
			h.Sh(lab.Gateway, fmt.Sprintf("busybox date -s @$(($(busybox date +%%s) + %d))", int(by.Seconds())))
			moved = errors.Join(moved, h.stays(addresses[0], holder, 6))
		}
		h.members()
		return moved
	})
}
