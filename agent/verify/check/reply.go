package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// maxPods is how many pods' replies are looked up.
	maxPods = 2
	// maxMarks bounds the look-ups on a node whose other software has rules by mark.
	maxMarks = 4
)

// ipvsInterface holds every service address on every node with kube-proxy in IPVS mode.
const ipvsInterface = "kube-ipvs0"

// pods are addresses from which pods reply: named ones, else those of host routes, else those of a container bridge.
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
			l != v.uplink {
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
		if l == nil || l.Type != "bridge" || !l.Up || !l.LowerUp || l == v.uplink ||
			!contract.IsPrivate(a.Prefix.Addr()) {
			continue
		}
		if next := a.Prefix.Addr().Next(); a.Prefix.Contains(next) {
			pods = append(pods, next)
		}
	}
	return pods
}

// marks are the marks that may send a reply to the network's own table: those of the agent's own rules where it manages
// the return path, one for each gateway, else those of all rules by mark.
func (v view) marks() []uint32 {
	var marks []uint32
	for _, r := range v.Rules {
		if v.Mask != 0 && r.Protocol != ManagedProtocol || v.isManagedForOther(r) {
			continue
		}
		if r.Mask != 0 && r.Mark != 0 && !r.Invert && r.Table != 0 && !r.Source.IsValid() {
			marks = append(marks, r.Mark)
		}
	}
	marks = sorted(marks)
	return marks[:min(len(marks), maxMarks)]
}

// checkServiceReplies asks how a pod's reply to a client of a Service leaves. The kernel routes it with the pod's
// address, so a rule by the address of the Service does not see it: the default route or a mark decides.
func checkServiceReplies(v view) Finding {
	pods := v.pods()
	if len(pods) == 0 {
		return notApplicable("no pod network was found on this node")
	}
	if v.unverifiable() {
		return notApplicable("a look-up does not show what eBPF programs do, see " + string(Verifiable))
	}
	if o, decided := checkIPVSReplies(v); decided {
		return o
	}
	pod, found := first(pods, v.leavesElsewhere)
	if !found {
		pod = pods[0]
	}
	way, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: pod, Forwarded: true}))
	if !asked {
		return notApplicable("no route was looked up")
	}
	if byVLAN {
		return ok(fmt.Sprintf("replies of pods (%s) leave by %s", pod, v.vlan.Name))
	}
	for _, mark := range v.marks() {
		_, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: pod, Forwarded: true, Mark: mark}))
		if asked && byVLAN {
			text := fmt.Sprintf("replies of pods (%s) with the mark %#x leave by %s", pod, mark, v.vlan.Name)
			if v.Mask == 0 { // a look-up cannot prove it
				text += "; the agent cannot see whether connections of Services are marked"
			}
			return ok(text)
		}
	}
	return Finding{Status: Warn, Reason: "ServiceRepliesElsewhere",
		Expected: "replies of Services leave by " + v.vlan.Name,
		Observed: fmt.Sprintf("replies of pods (%s) %s%s", pod, way, v.triedMarks()),
		Cause:    fmt.Sprintf("replies of pods to clients of Services %s instead of leaving by %s", way, v.vlan.Name),
		Fixes:    v.orManaged(func() []Fix { return fixServiceReplies(v) })}
}

// leavesElsewhere reports whether replies of a pod leave by another interface than that of the VLAN.
func (v view) leavesElsewhere(pod netip.Addr) bool {
	_, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: pod, Forwarded: true}))
	return asked && !byVLAN
}

func (v view) triedMarks() string {
	var texts []string
	for _, mark := range v.marks() {
		texts = append(texts, fmt.Sprintf("%#x", mark))
	}
	if len(texts) == 0 {
		return "; there is no rule by mark"
	}
	return ", with the marks " + strings.Join(texts, ", ") + " as well"
}

// checkIPVSReplies: IPVS looks the route up again once the reply carries the address of the Service again
// (net.ipv4.vs.snat_reroute), so what holds for the node's own address holds for the Service.
func checkIPVSReplies(v view) (Finding, bool) {
	if v.LinkNamed(ipvsInterface) == nil || !v.IPVSReroute {
		return Finding{}, false
	}
	for _, p := range v.own {
		if way, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: p.Addr()})); asked && byVLAN {
			return ok(fmt.Sprintf("IPVS routes replies by the address of the Service, and replies from %s %s", p.Addr(),
				way)), true
		}
	}
	return Finding{}, false
}

// markUser is a program that is known to use bits of the packet mark.
type markUser struct {
	name string
	bits uint32
	// links are how its interfaces' names begin; empty: it may be on any node.
	links []string
}

// markUsers of mark bits, by their documentation: kube-proxy (options of masquerade and drop), Calico (felix,
// IptablesMarkMask), Cilium (magic marks), Tailscale and Weave Net.
var markUsers = []markUser{
	{name: "kube-proxy", bits: 0xc000},
	{name: "Calico", bits: 0xffff0000, links: []string{"cali", "vxlan.calico", "tunl0", "wireguard.cali"}},
	{name: "Cilium", bits: 0xffff0f00, links: []string{"cilium_", "lxc"}},
	{name: "Tailscale", bits: 0xff0000, links: []string{"tailscale"}},
	{name: "Weave Net", bits: 0x60000, links: []string{"weave"}},
}

// MarkClash returns who else uses bits of mask: a rule that is not the agent's own, or a program that is known to.
func MarkClash(s Snapshot, mask uint32) (who string, found bool) {
	others := slices.DeleteFunc(slices.Clone(s.Rules),
		func(r Rule) bool { return !matchesBits(r, mask) || r.Protocol == ManagedProtocol })
	if len(others) > 0 {
		return "the rule " + slices.MinFunc(others, compareRules).String(), true
	}
	for _, u := range markUsers {
		if u.bits&mask != 0 && u.present(s) {
			return fmt.Sprintf("%s, which uses the bits %#x", u.name, u.bits), true
		}
	}
	return "", false
}

// matchesBits reports whether a rule matches packets that carry bits of mask, not one that requires them to be zero.
func matchesBits(r Rule, mask uint32) bool {
	return r.Mask&mask != 0 && (r.Mark&mask != 0 || r.Invert)
}

func (u markUser) present(s Snapshot) bool {
	if len(u.links) == 0 {
		return true
	}
	return s.link(func(l Link) bool {
		return slices.ContainsFunc(u.links, func(prefix string) bool { return strings.HasPrefix(l.Name, prefix) })
	}) != nil
}

func checkMark(v view) Finding {
	if v.Mask == 0 {
		return notApplicable("this agent does not manage the return path")
	}
	who, clash := MarkClash(v.Snapshot, v.Mask)
	if !clash {
		return ok(fmt.Sprintf("no other program is known to use the bits %#x", v.Mask))
	}
	return Finding{Status: Warn, Reason: "MarkClash",
		Expected: fmt.Sprintf("the bits %#x only for this agent", v.Mask), Observed: "also " + who,
		Cause: fmt.Sprintf("the mark bits %#x of the managed return path are also used by %s", v.Mask, who),
		Fixes: anyTool(v.freeMark(), "ip rule show")}
}

// freeMark names bits that are free on this node. Four are enough for the ten blocks that a network may hold.
func (v view) freeMark() string {
	for _, shift := range []int{4, 0, 8, 16, 20, 24, 28} {
		bits := uint32(0xf) << shift
		if _, clash := MarkClash(v.Snapshot, bits); !clash {
			return fmt.Sprintf("set free bits on the agents of all nodes, such as --mark=%#x", bits)
		}
	}
	return "on this node all bits are in use: free some of those that rules match, and set them on the agents of all " +
		"nodes with --mark, or run the agents without --manage=return-path"
}

// Files of the marks that a person sets.
const (
	marksFile = "/etc/phoenixnap-return-path.nft"
	marksUnit = "phoenixnap-return-path.service"
	// marksTable is not the managing agent's own table, which would replace it.
	marksTable = "return_path"
)

// fixServiceReplies offers the default route, the agent, or what the agent would do, by hand.
func fixServiceReplies(v view) []Fix {
	ways := v.replyRoutes()
	if len(ways) == 0 {
		return anyTool("make the gateway of the public network the node's default gateway once a block is assigned")
	}
	const note = "routes and rules for the marks, and for programs that listen on the node itself"
	fixes := []Fix{
		{Tool: AnyTool, Note: fmt.Sprintf("either make %s the node's default gateway, or run the agent with "+
			"--manage=return-path, or do by hand what it does, as below; a rule by source is not enough",
			ways[0].gateway)},
		{Tool: AnyTool, File: marksFile, Content: marks(ways), Commands: []string{"nft -f " + marksFile},
			Note: "marks connections that come by " + ways[0].name + ", and their replies"},
		{Tool: AnyTool, File: "/etc/systemd/system/" + marksUnit, Content: marksService,
			Note:     "sets the marks at every start of the machine",
			Commands: []string{"systemctl enable --now " + marksUnit}},
	}
	fixes = append(fixes, fixSetting(v, "rp_filter", 2)...)
	p := planHere(v)
	var commands []string
	for _, w := range ways {
		commands = append(commands, w.ipRoute2()...)
	}
	return byTool(slices.Concat(fixes, fixReplyRoutes(p, ways, note), fixMarks(p, ways), []Fix{
		networkManagerFix(p, ways, note), fix(IPRoute2, joinedNotes(note, volatile), commands...)}))
}

// marks is the ruleset of nft(8). Private addresses are left out: no gateway of a public network leads there.
func marks(ways []replyRoute) string {
	var b, replies strings.Builder
	keep := ^uint32(replyBits)
	fmt.Fprintf(&b,
		"table ip %[1]s\ndelete table ip %[1]s\ntable ip %[1]s {\n  chain prerouting {\n    type filter hook "+
			"prerouting priority mangle - 10;\n", marksTable)
	for _, w := range ways {
		fmt.Fprintf(&b,
			"    iifname %q ct state new ip saddr != { %s } ip daddr %s ct mark set ct mark and %#x xor %#x\n",
			w.name, joined(contract.PrivateNetworks()), w.block, keep, w.mark)
		fmt.Fprintf(&replies, "    ct direction reply ct mark and %#x == %#x meta mark set meta mark and %#x xor %#x\n",
			replyBits, w.mark, keep, w.mark)
	}
	fmt.Fprintf(&b, "%s  }\n  chain output {\n    type route hook output priority mangle;\n%s  }\n}\n",
		replies.String(), replies.String())
	return b.String()
}

const marksService = "[Unit]\nDescription=Marks for replies of the phoenixNAP public " +
	"network\nAfter=nftables.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/sbin/nft " +
	"-f " + marksFile +
	"\n[Install]\nWantedBy=multi-user.target\n"
