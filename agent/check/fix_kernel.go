package check

import "fmt"

// fixSysctl sets net.ipv4.conf.<interface>.<key>, with slashes because the name of a VLAN interface has a dot
// (sysctl.d(5)). With all, the value of "all" stands in the way and is set too.
func fixSysctl(name, key string, value int, all bool) []Fix {
	content := fmt.Sprintf("net/ipv4/conf/%s/%s = %d\n", name, key, value)
	if all {
		content += fmt.Sprintf("net/ipv4/conf/all/%s = %d\n", key, value)
	}
	return []Fix{{Tool: AnyTool, File: sysctlFile, Content: content, Commands: []string{"sysctl -p " + sysctlFile}}}
}
