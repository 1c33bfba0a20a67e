package check

// routeChecks are about the way of replies.
func routeChecks() []Check {
	return []Check{
		{
			ID: ReturnPath, Title: "replies leave by the VLAN interface", Severity: Warning,
			DependsOn: []ID{NodeAddress}, judge: judgeReturnPath,
			Meaning: "The kernel would send replies from the node's own address to clients outside by the VLAN interface. It is found by a route look-up, without traffic, and says nothing of replies that kube-proxy translates.",
			Causes:  []string{"The default route leaves by another network, and no rule sends what comes from the block back through it."},
			Remedy:  "Make the gateway of the public network the default gateway. A rule by source serves programs that listen on the node itself only. `--manage=return-path` lets the agent keep the routes.",
			Reasons: []string{"ReturnPathElsewhere"},
		},
	}
}
