package check

import "fmt"

// fixSysctl sets net.ipv4.conf.<interface>.<key>, with slashes because the name of a VLAN interface has a dot
// (sysctl.d(5)). With all, the value of "all" stands in the way and is set too.
func fixSysctl(name, key string, value int, all bool) []Fix {
	fixes := []Fix{sysctlFix(name+"-"+key, fmt.Sprintf("net/ipv4/conf/%s/%s = %d\n", name, key, value))}
	if all {
		fixes = append(fixes, sysctlFix("all-"+key, fmt.Sprintf("net/ipv4/conf/all/%s = %d\n", key, value)))
	}
	return fixes
}

// sysctlFix has a file for each setting, so that none undoes another.
func sysctlFix(name, content string) Fix {
	file := "/etc/sysctl.d/90-phoenixnap-" + name + ".conf"
	return Fix{Tool: AnyTool, File: file, Content: content, Commands: []string{"sysctl -p " + file}}
}
