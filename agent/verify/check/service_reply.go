package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const (
	// maxPods is how many pods' replies are looked up.
	maxPods = 2
	// maxMarks bounds the look-ups on a node whose other software has rules by mark.
	maxMarks = 4
)

// ipvsInterface holds every service address on every node with kube-proxy in IPVS mode.
const ipvsInterface = "kube-ipvs0"

// pods are addresses from which pods of this node reply: those that were named, else those that host routes lead to,
// else the neighbours of a container bridge.
func (v view) pods() []netip.Addr {
	pods := slices.Clone(v.PodSources)
	if len(pods) == 0 {
		pods = v.routedPods()
	}
	if len(pods) == 0 {
		pods = v.bridgedPods()
	}
	pods = slices.DeleteFunc(pods, func(a netip.Addr) bool { return !a.Is4() })
	slices.SortFunc(pods, netip.Addr.Compare)
	return pods[:min(len(pods), maxPods)]
}

func (v view) routedPods() []netip.Addr {
	var pods []netip.Addr
	for _, r := range v.Tables[TableMain] {
		l := v.LinkIndexed(r.LinkIndex)
		if r.Destination.IsSingleIP() && !r.Gateway.IsValid() && l != nil && l.Type == "veth" &&
			l.Index != v.uplinkIndex() {
			pods = append(pods, r.Destination.Addr())
		}
	}
	return pods
}

// bridgedPods takes the address after the bridge's own: no pod need have it, the route to it is the same.
func (v view) bridgedPods() []netip.Addr {
	var pods []netip.Addr
	for _, a := range v.Addresses {
		l := v.LinkIndexed(a.LinkIndex)
		if l == nil || l.Type != "bridge" || !l.Up || !l.LowerUp || l.Index == v.uplinkIndex() ||
			!a.Prefix.Addr().IsPrivate() {
			continue
		}
		if next := a.Prefix.Addr().Next(); a.Prefix.Contains(next) {
			pods = append(pods, next)
		}
	}
	return pods
}

func (v view) uplinkIndex() int {
	if v.uplink == nil {
		return 0
	}
	return v.uplink.Index
}

// marks are the marks that may send a reply to the network's own table: those of the agent's own rules where it manages
// the return path, one for each gateway, else those of all rules by mark.
func (v view) marks() []uint32 {
	var marks []uint32
	for _, r := range v.Rules {
		if v.Mask != 0 && r.Protocol != ManagedProtocol {
			continue
		}
		if r.Mask != 0 && r.Mark != 0 && !r.Invert && r.Table != 0 && !r.Source.IsValid() {
			marks = append(marks, r.Mark)
		}
	}
	slices.Sort(marks)
	marks = slices.Compact(marks)
	return marks[:min(len(marks), maxMarks)]
}

// checkServiceReplies asks how a pod's reply to a client of a Service leaves. When the kernel routes it, it still
// carries the pod's address, so a rule by the address of the Service does not see it: the default route or a mark
// decides.
func checkServiceReplies(v view) outcome {
	pods := v.pods()
	if len(pods) == 0 {
		return notApplicable("no pod network was found on this node")
	}
	pod := pods[0]
	if o, decided := checkIPVSReplies(v); decided {
		return o
	}
	for _, p := range pods {
		if _, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: p, Forwarded: true})); asked && !byVLAN {
			pod = p
			break
		}
	}
	way, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: pod, Forwarded: true}))
	if !asked {
		return notApplicable("no route was looked up")
	}
	if byVLAN {
		return ok(fmt.Sprintf("replies of pods (%s) leave by %s", pod, v.vlan.Name))
	}
	for _, mark := range v.marks() {
		if _, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: pod, Forwarded: true, Mark: mark})); asked &&
			byVLAN {
			return ok(fmt.Sprintf("replies of pods (%s) with the mark %#x leave by %s%s",
				pod, mark, v.vlan.Name, v.markCaveat()))
		}
	}
	if l := v.LinkNamed("cilium_host"); l != nil {
		return notApplicable("Cilium routes in eBPF, which a route look-up does not cover")
	}
	return outcome{status: Warn, reason: "ServiceRepliesElsewhere",
		expected: "replies of Services leave by " + v.vlan.Name, observed: fmt.Sprintf("replies of pods (%s) %s%s",
			pod, way, v.triedMarks()),
		cause: fmt.Sprintf("replies of pods to clients of Services %s instead of leaving by %s", way, v.vlan.Name),
		fixes: fixServiceReplies(v)}
}

// markCaveat is what a look-up cannot prove.
func (v view) markCaveat() string {
	if v.Mask != 0 {
		return ""
	}
	return "; the agent cannot see whether connections of Services are marked"
}

func (v view) triedMarks() string {
	marks := v.marks()
	if len(marks) == 0 {
		return "; there is no rule by mark"
	}
	texts := make([]string, len(marks))
	for i, mark := range marks {
		texts[i] = fmt.Sprintf("%#x", mark)
	}
	return ", with the marks " + strings.Join(texts, ", ") + " as well"
}

// checkIPVSReplies: IPVS looks the route up again once the reply carries the address of the Service again
// (net.ipv4.vs.snat_reroute), so what holds for the node's own address holds for the Service.
func checkIPVSReplies(v view) (outcome, bool) {
	if v.LinkNamed(ipvsInterface) == nil || !v.IPVSReroute {
		return outcome{}, false
	}
	for _, p := range v.own {
		if way, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: p.Addr()})); asked && byVLAN {
			return ok(fmt.Sprintf("IPVS routes replies by the address of the Service, and replies from %s %s", p.Addr(),
				way)), true
		}
	}
	return outcome{}, false
}
