package check

import (
	"fmt"
	"net/netip"
)

// checkRiskySettings finds settings that hurt on a bad day.
func checkRiskySettings(v view) outcome {
	return checkSetting(v, func(s Settings) outcome {
		name := v.vlan.Name
		all := v.Settings["all"]
		if s.AcceptLocal != 0 {
			return outcome{status: Warn, reason: "AcceptLocal", expected: "accept_local=0",
				observed: v.setting("accept_local", all.AcceptLocal, v.Settings[name].AcceptLocal),
				cause:    name + " accepts packets that claim to come from this node",
				fixes:    fixSysctl(name, "accept_local", 0, all.AcceptLocal != 0)}
		}
		if subnet, several := v.severalOfOneSubnet(); several && s.PromoteSecondaries == 0 {
			return outcome{status: Warn, reason: "SecondariesLost", expected: "promote_secondaries=1",
				observed: v.setting("promote_secondaries", all.PromoteSecondaries, v.Settings[name].PromoteSecondaries),
				cause: fmt.Sprintf("%s has several addresses of %s, and all are deleted with the first", name,
					subnet),
				fixes: fixSysctl(name, "promote_secondaries", 1, false)}
		}
		return ok(fmt.Sprintf("accept_local=%d, promote_secondaries=%d", s.AcceptLocal, s.PromoteSecondaries))
	})
}

// severalOfOneSubnet finds a subnet of which the VLAN interface has more than one address with that prefix length: all
// but the first are secondary.
func (v view) severalOfOneSubnet() (subnet netip.Prefix, found bool) {
	count := map[netip.Prefix]int{}
	for _, a := range v.Addresses {
		if a.LinkIndex != v.vlan.Index || !a.Prefix.Addr().Is4() || a.Prefix.IsSingleIP() {
			continue
		}
		masked := a.Prefix.Masked()
		if count[masked]++; count[masked] > 1 && (!found || masked.String() < subnet.String()) {
			subnet = masked
			found = true
		}
	}
	return subnet, found
}
