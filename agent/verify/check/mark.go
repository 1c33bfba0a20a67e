package check

import (
	"fmt"
	"strings"
)

// markUser is a program that is known to use bits of the packet mark.
type markUser struct {
	name string
	bits uint32
	// links are how its interfaces' names begin; empty: it may be on any node.
	links []string
}

// markUsers of mark bits, by their documentation: kube-proxy (options of masquerade and drop), Calico (felix,
// IptablesMarkMask), Cilium (magic marks), Tailscale and Weave Net.
func markUsers() []markUser {
	return []markUser{
		{name: "kube-proxy", bits: 0xc000},
		{name: "Calico", bits: 0xffff0000, links: []string{"cali", "vxlan.calico", "tunl0", "wireguard.cali"}},
		{name: "Cilium", bits: 0xffff0f00, links: []string{"cilium_", "lxc"}},
		{name: "Tailscale", bits: 0xff0000, links: []string{"tailscale"}},
		{name: "Weave Net", bits: 0x60000, links: []string{"weave"}},
	}
}

// MarkClash returns who else uses bits of mask: a rule that is not the agent's own, or a program that is known to.
// found is false when there is none.
func MarkClash(s Snapshot, mask uint32) (who string, found bool) {
	var rule *Rule
	for i, r := range s.Rules {
		if matchesBits(r, mask) && r.Protocol != ManagedProtocol && (rule == nil || compareRules(r, *rule) < 0) {
			rule = &s.Rules[i]
		}
	}
	if rule != nil {
		return "the rule " + rule.String(), true
	}
	for _, u := range markUsers() {
		if u.bits&mask != 0 && u.present(s) {
			return fmt.Sprintf("%s, which uses the bits %#x", u.name, u.bits), true
		}
	}
	return "", false
}

// matchesBits reports whether a rule matches packets that carry bits of mask. One that requires all of these bits to be
// zero does not.
func matchesBits(r Rule, mask uint32) bool {
	return r.Mask&mask != 0 && (r.Mark&mask != 0 || r.Invert)
}

func (u markUser) present(s Snapshot) bool {
	if len(u.links) == 0 {
		return true
	}
	return s.link(func(l Link) bool {
		for _, beginning := range u.links {
			if strings.HasPrefix(l.Name, beginning) {
				return true
			}
		}
		return false
	}) != nil
}

func checkMark(v view) outcome {
	if v.Mask == 0 {
		return notApplicable("this agent does not manage the return path")
	}
	who, clash := MarkClash(v.Snapshot, v.Mask)
	if !clash {
		return ok(fmt.Sprintf("no other program is known to use the bits %#x", v.Mask))
	}
	return outcome{status: Warn, reason: "MarkClash",
		expected: fmt.Sprintf("the bits %#x only for this agent", v.Mask), observed: "also " + who,
		cause: fmt.Sprintf("the mark bits %#x of the managed return path are also used by %s", v.Mask, who),
		fixes: []Fix{{Tool: AnyTool, Commands: []string{"ip rule show"},
			Note: "set a free bit with --mark, on every node"}}}
}
