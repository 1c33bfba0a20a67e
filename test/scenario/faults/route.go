//go:build linux

package faults

import "github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"

func routeFaults() []Fault {
	back := here("ip route replace default via $GATEWAY dev bond0.56 onlink")
	return []Fault{
		{Name: "default route by the private network", ID: "PN501", Reason: "ReturnPathElsewhere", Told: ByMetric,
			Status: check.Warn, Event: true, Short: true,
			make: here("ip route replace default via $ELSEWHERE dev bond0.4"), mend: back},
		{Name: "replies of pods by the private network", ID: "PN502", Reason: "ServiceRepliesElsewhere", Told: ByMetric,
			Status: check.Warn, Event: true,
			make: here("ip route add default via $ELSEWHERE dev bond0.4 table 77\nip rule add from $PODS lookup 77 " +
				"priority 77"),
			mend: here("ip rule delete priority 77\nip route flush table 77")},
		{Name: "routing table that a rule names is empty", ID: "PN503", Reason: "TableEmpty", Told: ByMetric,
			Status: check.Warn, Event: true,
			make: here("ip rule add from $BLOCK lookup 78 priority 78"), mend: here("ip rule delete priority 78")},
	}
}
