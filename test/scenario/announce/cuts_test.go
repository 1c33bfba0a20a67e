//go:build linux

package announce

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/labtest"
)

// way is that of frames from one server to another.
type way struct{ from, to string }

// cut has the switch drop frames on some ways between servers. Gateway and API server are reached by all still.
func (r *rig) cut(ways ...way) {
	r.T.Helper()
	var rules strings.Builder
	for _, w := range ways {
		fmt.Fprintf(&rules, "iifname \"p-%s\" oifname \"p-%s\" counter drop\n", w.from, w.to)
	}
	r.nft("table bridge cut {\nchain forward {\ntype filter hook forward priority 0;\n" + rules.String() + "}\n}")
	r.T.Cleanup(r.uncut)
}

// mend has the switch forward everything again. It is an error if nothing was dropped on a path.
func (r *rig) mend() {
	r.T.Helper()
	out, err := r.Lab.Exec(r.T.Context(), lab.Switch, "nft", "list", "table", "bridge", "cut")
	r.Must("nft", err)
	if rules := string(out.Stdout); out.Code != 0 || !strings.Contains(rules, "drop") ||
		strings.Contains(rules, "counter packets 0 ") {
		r.T.Errorf("on some way nothing was cut:\n%s%s", rules, out.Stderr)
	}
	r.uncut()
	r.members()
}

// uncut removes what cut made, if it exists.
func (r *rig) uncut() { r.nft("table bridge cut {}\ndelete table bridge cut") }

func (r *rig) nft(rules string) {
	r.T.Helper()
	out, err := r.Lab.ExecProgram(r.T.Context(), lab.Program{Host: lab.Switch, Args: []string{"nft", "-f", "-"},
		Stdin: []byte(rules + "\n")})
	r.Must("nft", err)
	if out.Code != 0 {
		r.T.Fatalf("nft: %s\n%s", out.Stderr, rules)
	}
}

// others are all servers but one.
func (r *rig) others(but string) []string {
	return slices.DeleteFunc(labtest.Names(r.servers), func(name string) bool { return name == but })
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
func (r *rig) succeeded(address netip.Addr, holder string) {
	r.T.Helper()
	r.eventually(fmt.Sprintf("another server than %s answers for %s", holder, address), func() bool {
		return r.single(address) != holder && r.view().Owners[address].Node != holder && r.single(address) != ""
	})
	for range 5 {
		if got := r.single(address); got == holder {
			r.T.Errorf("%s answers for %s again, of which it is not the owner", holder, address)
		}
	}
}

// single is the only server that answers for an address, empty when none does. That two do is an error.
func (r *rig) single(address netip.Addr) string {
	r.T.Helper()
	found := r.answerers(address)
	switch len(found) {
	case 0:
		return ""
	case 1:
		return found[0]
	default:
		r.T.Errorf("%q answer for %s", found, address)
		return ""
	}
}

// stays: for some time only the server answers for the address. In a machine that shares its processor it may be
// silent for a moment.
func (r *rig) stays(address netip.Addr, holder string, beats int) {
	r.T.Helper()
	answered := 0
	for range beats {
		switch got := r.single(address); got {
		case "":
		case holder:
			answered++
		default:
			r.T.Errorf("%s answers for %s, which is %s's", got, address, holder)
		}
	}
	if answered < beats/2 {
		r.T.Errorf("%s answered %d of %d requests for %s", holder, answered, beats, address)
	}
}

// notHeard: others do not hear the holder, which hears them.
func (r *rig) notHeard(addresses []netip.Addr) {
	r.cutOff(addresses[0], func(there, _ []way) []way { return there })
	r.mend()
}

// hearsNobody: the holder does not hear the others, which hear it.
func (r *rig) hearsNobody(addresses []netip.Addr) {
	r.cutOff(addresses[0], func(_, back []way) []way { return back })
	r.mend()
}

// split: the VLAN falls into two parts, each of which reaches the gateway and the API server; the greater one
// continues.
func (r *rig) split(addresses []netip.Addr) {
	holder := r.cutOff(addresses[0], func(there, back []way) []way { return slices.Concat(there, back) })
	for _, a := range addresses {
		r.owner(a, holder)
	}
	r.mend()
}

// cutOff cuts some of the ways between the holder of an address and the others, until one of them has succeeded it.
func (r *rig) cutOff(address netip.Addr, some func(there, back []way) []way) (holder string) {
	r.T.Helper()
	holder = r.owner(address)
	r.cut(some(between(holder, r.others(holder)))...)
	r.succeeded(address, holder)
	return holder
}

// pairCut: the holder and another server do not hear each other. Each of them is a majority with the third.
func (r *rig) pairCut(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	there, back := between(holder, r.others(holder)[:1])
	r.cut(slices.Concat(there, back)...)
	r.stays(addresses[0], holder, 8)
	r.mend()
}

// apiLost: only the holder loses the API server. It continues while the view does not change.
func (r *rig) apiLost(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	r.IP(holder, "link", "set", privateLink, "down")
	r.stays(addresses[0], holder, 8)
	r.IP(holder, "link", "set", privateLink, "up")
	r.members()
}

// restored: a user writes back an older view, by which another server owns the address.
func (r *rig) restored(addresses []netip.Addr) {
	holder := r.owner(addresses[0])
	views := r.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	old, err := views.Get(r.T.Context(), contract.AnnouncerView, metav1.GetOptions{})
	r.Must("read the view", err)
	r.annotate(holder, map[string]any{contract.NodeHandOver: "true"})
	r.succeeded(addresses[0], holder)
	number := r.view().Number
	old.ResourceVersion = ""
	_, err = views.Update(r.T.Context(), old, metav1.UpdateOptions{})
	r.Must("write an older view", err)
	r.eventually("the agents write a newer view than all before",
		func() bool { return r.single(addresses[0]) != holder && r.view().Number > number })
	r.annotate(holder, map[string]any{contract.NodeHandOver: nil})
	r.owner(addresses[0])
	r.members()
}

// clockJumps: the wall clock is set, an hour ahead and an hour back, where a certificate of the API server is not valid
// yet.
func (r *rig) clockJumps(addresses []netip.Addr) {
	const bootID = "/proc/sys/kernel/random/boot_id"
	own, err := os.ReadFile(bootID)
	r.Must("which kernel this is", err)
	if r.Run(lab.Gateway, "busybox", "cat", bootID) == string(own) {
		r.T.Log("the lab is on the kernel of this machine, whose clock is not changed")
		return
	}
	holder := r.owner(addresses[0])
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		r.Sh(lab.Gateway, fmt.Sprintf("busybox date -s @$(($(busybox date +%%s) + %d))", int(by.Seconds())))
		r.stays(addresses[0], holder, 6)
	}
	r.members()
}
