package check

import (
	"fmt"
	"slices"
	"strings"
)

// Files of the marks that a person sets.
const (
	marksFile = "/etc/phoenixnap-return-path.nft"
	marksUnit = "phoenixnap-return-path.service"
	// marksTable is not the managing agent's own table, which would replace it.
	marksTable = "return_path"
)

// fixServiceReplies offers the ways that replies of pods can take: the default route, the agent, or what the agent
// would do, by hand.
func fixServiceReplies(v view) []Fix {
	ways := v.replyRoutes()
	if len(ways) == 0 {
		return []Fix{{Tool: AnyTool,
			Note: "make the gateway of the public network the node's default gateway once a block is assigned"}}
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
	fixes = append(fixes, fixSysctl(ways[0].name, "rp_filter", 2, false)...)
	p := planHere(v)
	var commands []string
	for _, w := range ways {
		commands = append(commands, w.ipRoute2()...)
	}
	return byTool(slices.Concat(fixes, fixReplyRoutes(p, ways, note), fixMarks(p, ways), []Fix{
		networkManagerFix(p, ways, note), {Tool: IPRoute2, Note: joinedNotes(note, volatile), Commands: commands}}))
}

// marks is the ruleset of nft(8). Who asks from a private address is answered by the main table, for no gateway of a
// public network leads there.
func marks(ways []replyRoute) string {
	var b strings.Builder
	var replies strings.Builder
	keep := ^uint32(replyBits)
	fmt.Fprintf(&b,
		"table ip %[1]s\ndelete table ip %[1]s\ntable ip %[1]s {\n  chain prerouting {\n    type filter hook "+
			"prerouting priority mangle - 10;\n", marksTable)
	for _, w := range ways {
		fmt.Fprintf(&b,
			"    iifname %q ct state new ip saddr != { 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 } ip "+
				"daddr %s ct mark set ct mark and %#x xor %#x\n",
			w.name, w.block, keep, w.mark)
		fmt.Fprintf(&replies, "    ct direction reply ct mark and %#x == %#x meta mark set meta mark and %#x xor %#x\n",
			replyBits, w.mark, keep, w.mark)
	}
	fmt.Fprintf(&b, "%s  }\n  chain output {\n    type route hook output priority mangle;\n%s  }\n}\n",
		replies.String(), replies.String())
	return b.String()
}

const marksService = "[Unit]\nDescription=Marks for replies of the phoenixNAP public network\nAfter=nftables.service\n" +
	"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/sbin/nft -f " + marksFile +
	"\n[Install]\nWantedBy=multi-user.target\n"
