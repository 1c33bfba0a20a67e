package check

import (
	"fmt"
	"slices"
	"strings"
)

// Program is the eBPF program of a tc filter. Those attached by tcx cannot be listed with the agent's rights.
type Program struct {
	// LinkIndex is the index of the interface.
	LinkIndex int
	// Hook is where it runs: "tc ingress" or "tc egress".
	Hook string
	// Name is the name of the filter (TCA_BPF_NAME), such as "cil_from_netdev-bond0.100"; empty where it has none.
	Name string
}

// balancer is a network plugin that can balance Services in eBPF.
type balancer struct {
	name string
	// links are interfaces of the plugin, programs how the names of its programs begin.
	links, programs []string
	// proof is a command that shows whether the plugin balances Services.
	proof string
}

// balancers by the sources of Cilium (bpf/bpf_host.c) and Calico (felix/dataplane/linux/dataplanedefs, felix/bpf-gpl).
// Cilium has its interfaces without kube-proxy replacement, too; Calico has these only with its eBPF data plane.
var balancers = []balancer{
	{name: "Cilium", links: []string{"cilium_host"}, programs: []string{"cil_", "bpf_host", "bpf_netdev"},
		proof: "kubectl -n kube-system exec ds/cilium -- cilium-dbg status | grep KubeProxyReplacement"},
	{name: "Calico", links: []string{"bpfin.cali", "bpfout.cali", "bpfnatin", "bpfnatout"},
		programs: []string{"cali"},
		proof:    "kubectl get felixconfiguration default -o jsonpath='{.spec.bpfEnabled}{\"\\n\"}'"},
}

// checkVerifiable: eBPF programs translate Services without netfilter and may choose the interface themselves, so
// neither routes nor marks prove how replies leave.
func checkVerifiable(v view) Finding {
	who, seen, commands := v.balancing()
	if len(seen) == 0 {
		return ok("no eBPF program that may balance Services was found")
	}
	if v.repliesByDefaultRoute() {
		return ok(fmt.Sprintf("%s; the default route leads replies to %s in any case", list(seen), v.vlan.Name))
	}
	return Finding{Status: Warn, Reason: "ReturnPathUnverified",
		Expected: fmt.Sprintf("a default route by %s, or no eBPF program that may balance Services", v.vlan.Name),
		Observed: list(seen),
		Cause: fmt.Sprintf("the return path of Services cannot be verified here: %s may balance Services in eBPF, "+
			"where neither routes nor marks show how replies leave", who),
		Fixes: anyTool("while clients outside send requests, each must be followed by its reply; otherwise replies "+
			"leave by another interface: make the gateway of the public network the default gateway",
			slices.Concat([]string{v.watchReplies()}, commands, []string{"bpftool net show"})...)}
}

// unverifiable reports whether eBPF programs may lead replies another way than the kernel's look-up.
func (v view) unverifiable() bool {
	_, seen, _ := v.balancing()
	return len(seen) > 0 && !v.repliesByDefaultRoute()
}

// balancing returns what may balance Services in eBPF, by which evidence, and how to look.
func (v view) balancing() (who string, seen, commands []string) {
	var names []string
	for _, b := range balancers {
		if found := v.evidence(b); len(found) > 0 {
			names = append(names, b.name)
			seen = append(seen, found...)
			commands = append(commands, b.proof)
		}
	}
	unknown := append(v.programs(func(p Program) bool { return !slices.ContainsFunc(balancers, p.of) }), v.xdp()...)
	if len(unknown) > 0 {
		names = append(names, "another program")
	}
	return strings.Join(names, " and "), append(seen, unknown...), commands
}

// Balancers names the network plugins that can balance Services in eBPF, by their interfaces; empty when there is none.
func Balancers(s Snapshot) string {
	var names []string
	for _, b := range balancers {
		if len(b.interfaces(s)) > 0 {
			names = append(names, b.name)
		}
	}
	return strings.Join(names, " and ")
}

func (b balancer) interfaces(s Snapshot) []string {
	return slices.DeleteFunc(slices.Clone(b.links), func(name string) bool { return s.LinkNamed(name) == nil })
}

func (v view) evidence(b balancer) []string {
	var found []string
	for _, name := range b.interfaces(v.Snapshot) {
		found = append(found, "interface "+name)
	}
	return append(found, v.programs(func(p Program) bool { return p.of(b) })...)
}

// programs lists the matching programs on the VLAN interface and the links below it.
func (v view) programs(match func(Program) bool) []string {
	var found []string
	for _, p := range v.Programs {
		l := v.LinkIndexed(p.LinkIndex)
		if l == nil || !v.carries(l) || !match(p) {
			continue
		}
		text := p.Hook + " program on " + l.Name
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
		found = append(found, text)
	}
	return sorted(found)
}

// xdp lists the same links' XDP programs, whose names are not known.
func (v view) xdp() []string {
	var found []string
	for i := range v.Links {
		if l := &v.Links[i]; l.XDP && v.carries(l) {
			found = append(found, "XDP program on "+l.Name)
		}
	}
	return sorted(found)
}

// carries reports whether clients' packets pass the link.
func (v view) carries(l *Link) bool {
	return l.Index == v.vlan.Index || v.uplink != nil && (l.Index == v.uplink.Index || l.Master == v.trunk.Index) ||
		l.Index == v.vlan.Parent
}

func (p Program) of(b balancer) bool {
	return slices.ContainsFunc(b.programs, func(prefix string) bool { return strings.HasPrefix(p.Name, prefix) })
}

// repliesByDefaultRoute reports whether replies leave by the VLAN interface with any source and without a mark, so that
// it does not matter what translates them.
func (v view) repliesByDefaultRoute() bool {
	return v.defaultIsVLAN() && !slices.ContainsFunc(v.pods(), v.leavesElsewhere)
}

// watchReplies shows requests and replies on the VLAN interface.
func (v view) watchReplies() string {
	var blocks []string
	for _, b := range v.blocks4() {
		blocks = append(blocks, "net "+b.CIDR.String())
	}
	if len(blocks) == 0 {
		return "tcpdump -ni " + v.vlan.Name + " tcp"
	}
	return fmt.Sprintf("tcpdump -c 20 -ni %s 'tcp and (%s)'", v.vlan.Name, strings.Join(blocks, " or "))
}

// list keeps evidence readable.
func list(texts []string) string {
	if len(texts) > maxNames {
		texts = append(slices.Clone(texts[:maxNames]), "…")
	}
	return strings.Join(texts, ", ")
}
