package check

// Checks about the route of replies.
const (
	ReturnPath     ID = "PN501"
	ServiceReplies ID = "PN502"
	RoutingTables  ID = "PN503"
	MarkBits       ID = "PN504"
)

// routeChecks are about the way of replies.
func routeChecks() []Check {
	return []Check{
		{
			ID: RoutingTables, Title: "routing rules lead to tables with routes", Severity: Warning,
			DependsOn: []ID{NodeAddress}, evaluate: checkTables,
			Meaning: "Every routing rule by an address of the blocks or by a mark leads to a table with routes, one " +
				"by address to a table with a default route. The kernel deletes the routes of an interface, in every " +
				"table, when it goes down or loses its last address, and reports nothing.",
			Causes: []string{
				"The interface was set down and up, and the routes were not added again.",
				"systemd-networkd was restarted and removed routes that it does not know.",
				"The rule was added without the routes.",
			},
			Remedy: "Make the routes part of the configuration of the machine's network, or let the agent keep them " +
				"with `--manage=return-path`.",
			Reasons: []string{"TableEmpty", "TableWithoutDefault"},
		},
		{
			ID: MarkBits, Title: "no other program uses the mark bits of the return path", Severity: Warning,
			DependsOn: []ID{NetworkPublished}, evaluate: checkMark,
			Meaning: "Where the agent manages the return path, no foreign rule and no program with known mark bits " +
				"uses the agent's bits of the packet mark.",
			Causes:  []string{"The container network uses the same bits.", "Another program routes by mark."},
			Remedy:  "Choose another bit with `--mark`, on every node.",
			Reasons: []string{"MarkClash"},
		},
		{
			ID: ReturnPath, Title: "replies leave by the VLAN interface", Severity: Warning,
			DependsOn: []ID{NodeAddress}, evaluate: checkReturnPath,
			Meaning: "The kernel would send replies from the node's own address to clients outside by the VLAN " +
				"interface. The check uses a route look-up, without traffic, and does not cover replies that " +
				"kube-proxy translates.",
			Causes: []string{"The default route leaves by another network, and no rule sends what comes from the " +
				"block back through it."},
			Remedy: "Make the gateway of the public network the default gateway. A rule by source serves only " +
				"programs that listen on the node itself. `--manage=return-path` lets the agent keep the routes.",
			Reasons: []string{"ReturnPathElsewhere"},
		},
		{
			ID: ServiceReplies, Title: "replies of pods leave by the VLAN interface", Severity: Warning,
			DependsOn: []ID{NodeAddress, Forwarding}, evaluate: checkServiceReplies,
			Meaning: "The kernel would send the reply of a pod to a client of a Service by the VLAN interface, by the " +
				"default route or by a mark. When it chooses the route, the reply still carries the address of the " +
				"pod, so a rule by the address of the Service does not help. The check uses route look-ups; without " +
				"permission to read the packet filter, the agent cannot see whether connections are marked. It only " +
				"warns, because the network's filters decide whether such replies are dropped.",
			Causes: []string{
				"The default route leaves by another network, and nothing marks the connections of Services.",
				"Only a rule by source was set up.", "The table that the mark leads to was lost.",
			},
			Remedy: "Make the gateway of the public network the default gateway, or run the agent with " +
				"`--manage=return-path`.",
			Reasons: []string{"ServiceRepliesElsewhere"},
		},
	}
}
