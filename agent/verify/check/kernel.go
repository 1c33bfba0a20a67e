package check

import (
	"fmt"
	"net/netip"
	"strings"
)

// Checks about settings of the kernel.
const (
	ReversePath   ID = "PN401"
	ARPAnswering  ID = "PN402"
	ARPSource     ID = "PN403"
	StrictARP     ID = "PN404"
	Forwarding    ID = "PN405"
	ProxyARP      ID = "PN406"
	RiskySettings ID = "PN407"
)

var kernelChecks = []Check{
	{
		ID: ReversePath, Title: "the reverse path filter accepts service traffic", Severity: Error,
		DependsOn: []ID{VLANInterface}, evaluate: checkReversePath,
		Meaning: "The kernel accepts what clients send to the VLAN interface: reverse path filtering is not strict " +
			"(`rp_filter`, the greater of `all` and the interface) or the route back leaves by it, and a route back " +
			"exists. The check uses route look-ups and sends no traffic.",
		Causes: []string{"The distribution's default is strict filtering.", "A hardening profile set it.",
			"The node has no default route."},
		Remedy:  "Set `rp_filter=2`, and give the node a default route.",
		Reasons: []string{"StrictReversePath", "NoRouteToClients", reasonUnreadable},
	},
	{
		ID: ARPAnswering, Title: "the kernel answers ARP for service addresses", Severity: Error,
		DependsOn: []ID{VLANInterface}, evaluate: checkARPAnswering,
		Meaning: "ARP is enabled, and `arp_ignore` and `arp_filter` let the kernel answer for service addresses, " +
			"which are added as a /32.",
		Causes:  []string{"A hardening profile, or the set-up of another load balancer, changed them."},
		Remedy:  "Enable ARP, set `arp_ignore` to 0 or 1 and `arp_filter` to 0.",
		Reasons: []string{"ARPOff", "ARPIgnored", "ARPRestricted", "ARPFiltered", reasonUnreadable},
	},
	{
		ID: ARPSource, Title: "the kernel sends ARP requests from an address of the link", Severity: Warning,
		DependsOn: []ID{VLANInterface}, evaluate: checkARPSource,
		Meaning: "The kernel does not send ARP requests from an address of another network, which a router may ignore.",
		Causes:  []string{"The VLAN interface has no address of its own, and `arp_announce` is 0."},
		Remedy:  "Give the interface its address, or set `arp_announce=2`.",
		Reasons: []string{"ARPSourceForeign", reasonUnreadable},
	},
	{
		ID: StrictARP, Title: "kube-proxy's IPVS does not answer for service addresses", Severity: Error,
		DependsOn: []ID{VLANInterface}, evaluate: checkStrictARP,
		Meaning: "Where kube-proxy uses IPVS, every node carries every service address on `kube-ipvs0`; " +
			"`arp_ignore=1` keeps them from answering.",
		Causes:  []string{"kube-proxy runs in IPVS mode without `strictARP`."},
		Remedy:  "Set `ipvs.strictARP: true` in the configuration of kube-proxy.",
		Reasons: []string{"StrictARPMissing", reasonUnreadable},
	},
	{
		ID: Forwarding, Title: "the node forwards packets to pods", Severity: Error,
		DependsOn: []ID{NetworkPublished, Identity}, evaluate: checkForwarding,
		Meaning: "The kernel forwards packets to pods (`net.ipv4.ip_forward=1`), also those that arrive on the VLAN " +
			"interface (`forwarding=1`).",
		Causes:  []string{"A hardening profile turned forwarding off after the container network had turned it on."},
		Remedy:  "Set `net.ipv4.ip_forward=1`, in a file that is read last.",
		Reasons: []string{"ForwardingOff", "ForwardingOffHere", reasonUnreadable},
	},
	{
		ID: ProxyARP, Title: "the node does not answer for foreign addresses", Severity: Warning,
		DependsOn: []ID{VLANInterface}, evaluate: checkProxyARP,
		Meaning: "The node does not answer ARP for addresses that are not its own (`proxy_arp=0`).",
		Causes:  []string{"A container network turned `proxy_arp` on for all interfaces."},
		Remedy:  "Set `proxy_arp=0` for the VLAN interface and for `all`.",
		Reasons: []string{"ProxyARP", reasonUnreadable},
	},
	{
		ID: RiskySettings, Title: "no setting of the VLAN interface is risky", Severity: Warning,
		DependsOn: []ID{VLANInterface}, evaluate: checkRiskySettings,
		Meaning: "Packets that claim to come from this node are dropped (`accept_local=0`), and where the interface " +
			"has several addresses of one subnet, the others stay when the first is deleted (`promote_secondaries=1`).",
		Causes:  []string{"A set-up guide of another load balancer, or an old distribution's defaults."},
		Remedy:  "Set `accept_local=0` and `promote_secondaries=1`.",
		Reasons: []string{"AcceptLocal", "SecondariesLost", reasonUnreadable},
	},
}

// reasonUnreadable is the reason when settings could not be read.
const reasonUnreadable = "SettingsUnreadable"

// Settings are the settings of net/ipv4/conf/<interface> by the kernel's names, see SettingNames.
type Settings map[string]int

// SettingNames are the settings that are read of each interface (Documentation/networking/ip-sysctl.rst of Linux).
func SettingNames() []string {
	return []string{"rp_filter", "arp_ignore", "arp_announce", "arp_filter", "proxy_arp", "forwarding", "accept_local",
		"promote_secondaries"}
}

// effective combines a setting of "all" and of the VLAN interface as the kernel does for all but forwarding: the
// greater value, which for flags is the logical or. observed writes both.
func (v view) effective(key string) (value int, observed string) {
	all := v.Settings["all"][key]
	own := v.Settings[v.vlan.Name][key]
	return max(all, own), fmt.Sprintf("%s: all=%d, %s=%d", key, all, v.vlan.Name, own)
}

// unreadable returns a finding where the settings could not be read.
func (v view) unreadable() (Finding, bool) {
	_, hasAll := v.Settings["all"]
	_, hasOwn := v.Settings[v.vlan.Name]
	return undetermined(reasonUnreadable, "the settings of "+v.vlan.Name+" under net/ipv4/conf could not be read"),
		!hasAll || !hasOwn
}

// checkReversePath: strict filtering (1) drops a client's packet whose reply would leave by another interface
// (RFC 3704), so it is harmless only where the default route leads through the VLAN; loose filtering (2) drops what no
// route leads back to. The kernel's own answer for such a packet outweighs the settings.
func checkReversePath(v view) Finding {
	if f, unreadable := v.unreadable(); unreadable {
		return f
	}
	value, observed := v.effective("rp_filter")
	refused, passes, known := v.accepted()
	strict := value == 1
	if known && !passes {
		observed += fmt.Sprintf("; look-up of %s from %s by %s: %s", refused.Destination, refused.Source, refused.Iif,
			refused.Error)
	}
	switch {
	case known && passes && strict:
		return ok(observed + " (strict, but the kernel accepts packets of clients)")
	case known && passes:
		return ok(observed + "; the kernel accepts packets of clients")
	case known && !strict:
		return Finding{Status: Fail, Reason: "NoRouteToClients", Expected: "a route back to every client",
			Observed: observed, Cause: "no route leads back to clients, so their packets are dropped on " + v.vlan.Name,
			Fixes: fixNoRoute(v)}
	case !known && (!strict || v.defaultIsVLAN()):
		return ok(observed)
	default:
		return Finding{Status: Fail, Reason: "StrictReversePath", Expected: "rp_filter=2 (loose)", Observed: observed,
			Cause: "strict reverse path filtering on " + v.vlan.Name + " drops service traffic",
			Fixes: fixSetting(v, "rp_filter", 2)}
	}
}

// checkARPAnswering: arp_ignore 3 to 8 silences the kernel for addresses as kube-vip adds them; 2 answers only
// senders of the address' own subnet, which a /32 has none of.
func checkARPAnswering(v view) Finding {
	name := v.vlan.Name
	if v.vlan.NoARP {
		return Finding{Status: Fail, Reason: "ARPOff", Expected: "ARP on " + name, Observed: "the flag NOARP",
			Cause: "ARP is turned off on " + name, Fixes: perTool([]string{"ip link set " + name + " arp on"},
				"remove the setting from the configuration (ARP=no in networkd's .network file), too")}
	}
	if f, unreadable := v.unreadable(); unreadable {
		return f
	}
	ignore, observed := v.effective("arp_ignore")
	filter, _ := v.effective("arp_filter")
	observed += fmt.Sprintf("; arp_filter=%d", filter)
	f := Finding{Status: Warn, Expected: "arp_ignore=0 or 1, arp_filter=0", Observed: observed}
	switch {
	case ignore > 2:
		f.Status = Fail
		f.Reason = "ARPIgnored"
		f.Cause = fmt.Sprintf("arp_ignore=%d keeps %s from answering ARP for service addresses", ignore, name)
		f.Fixes = fixSetting(v, "arp_ignore", 1)
	case ignore == 2:
		f.Reason = "ARPRestricted"
		f.Cause = "arp_ignore=2 may keep " + name + " from answering the gateway for service addresses"
		f.Fixes = fixSetting(v, "arp_ignore", 1)
	case filter != 0 && !v.defaultIsVLAN():
		f.Reason = "ARPFiltered"
		f.Cause = "with arp_filter=1, " + name + " answers only senders that it routes to"
		f.Fixes = fixSetting(v, "arp_filter", 0)
	default:
		return ok(observed)
	}
	return f
}

// checkARPSource: on an interface without an address of its own, the kernel must borrow one.
func checkARPSource(v view) Finding {
	if f, unreadable := v.unreadable(); unreadable {
		return f
	}
	value, observed := v.effective("arp_announce")
	if value >= 1 || len(v.own) > 0 {
		return ok(observed)
	}
	return Finding{Status: Warn, Reason: "ARPSourceForeign", Expected: "arp_announce=2", Observed: observed,
		Cause: v.vlan.Name + " may send ARP requests from an address of another network, which the gateway may ignore",
		Fixes: fixSetting(v, "arp_announce", 2)}
}

// checkStrictARP: IPVS puts every service address on the interface kube-ipvs0 of every node, and with arp_ignore=0
// every node answers for them (kube-proxy, option ipvs.strictARP).
func checkStrictARP(v view) Finding {
	if v.LinkNamed(ipvsInterface) == nil {
		return notApplicable("kube-proxy does not use IPVS")
	}
	if f, unreadable := v.unreadable(); unreadable {
		return f
	}
	value, observed := v.effective("arp_ignore")
	if value >= 1 {
		return ok(observed)
	}
	return Finding{Status: Fail, Reason: "StrictARPMissing", Expected: "arp_ignore=1", Observed: observed,
		Cause: "with IPVS and arp_ignore=0 every node answers for every service address",
		Fixes: append(anyTool("set ipvs.strictARP: true in the configuration of kube-proxy"),
			fixSetting(v, "arp_ignore", 1)...)}
}

// checkForwarding: the setting of one interface outweighs the general one.
func checkForwarding(v view) Finding {
	for _, unread := range v.Unread {
		if strings.HasPrefix(unread, "net/ipv4/ip_forward") {
			return undetermined(reasonUnreadable, unread)
		}
	}
	if !v.IPForward {
		return Finding{Status: Fail, Reason: "ForwardingOff", Expected: "ip_forward=1", Observed: "ip_forward=0",
			Cause: "the kernel does not forward packets, so services do not reach pods",
			Fixes: []Fix{sysctlFix("ip_forward", "net.ipv4.ip_forward = 1\n")}}
	}
	if v.vlan == nil || !v.Settings[v.vlan.Name].forwardingOff() {
		return ok("ip_forward=1")
	}
	name := v.vlan.Name
	return Finding{Status: Fail, Reason: "ForwardingOffHere", Expected: "forwarding=1 on " + name,
		Observed: "ip_forward=1, forwarding=0 on " + name,
		Cause:    "the kernel does not forward what comes in by " + name + ", so services do not reach pods",
		Fixes:    fixSetting(v, "forwarding", 1)}
}

// forwardingOff reports that packets that come in here are not passed on.
func (s Settings) forwardingOff() bool {
	forwarding, has := s["forwarding"]
	return has && forwarding == 0
}

func checkProxyARP(v view) Finding {
	if f, unreadable := v.unreadable(); unreadable {
		return f
	}
	value, observed := v.effective("proxy_arp")
	if value == 0 {
		return ok(observed)
	}
	return Finding{Status: Warn, Reason: "ProxyARP", Expected: "proxy_arp=0", Observed: observed,
		Cause: v.vlan.Name + " answers ARP for addresses that are not the node's", Fixes: fixSetting(v, "proxy_arp", 0)}
}

// checkRiskySettings finds settings that hurt on a bad day.
func checkRiskySettings(v view) Finding {
	if f, unreadable := v.unreadable(); unreadable {
		return f
	}
	local, observed := v.effective("accept_local")
	if local != 0 {
		return Finding{Status: Warn, Reason: "AcceptLocal", Expected: "accept_local=0", Observed: observed,
			Cause: v.vlan.Name + " accepts packets that claim to come from this node",
			Fixes: fixSetting(v, "accept_local", 0)}
	}
	promote, observed := v.effective("promote_secondaries")
	if subnet, several := v.severalOfOneSubnet(); several && promote == 0 {
		return Finding{Status: Warn, Reason: "SecondariesLost", Expected: "promote_secondaries=1", Observed: observed,
			Cause: fmt.Sprintf("%s has several addresses of %s, and all are deleted with the first", v.vlan.Name,
				subnet),
			Fixes: fixSetting(v, "promote_secondaries", 1)}
	}
	return ok(fmt.Sprintf("accept_local=%d, promote_secondaries=%d", local, promote))
}

// severalOfOneSubnet finds a subnet of several addresses of the VLAN interface: all but the first are secondary.
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

// fixSetting sets net.ipv4.conf.<interface>.<key>, with slashes because the name of a VLAN interface has a dot
// (sysctl.d(5)), and that of "all" where it is greater and so stands in the way.
func fixSetting(v view, key string, value int) []Fix {
	fixes := []Fix{sysctlFix(v.vlan.Name+"-"+key, fmt.Sprintf("net/ipv4/conf/%s/%s = %d\n", v.vlan.Name, key, value))}
	if v.Settings["all"][key] > value {
		fixes = append(fixes, sysctlFix("all-"+key, fmt.Sprintf("net/ipv4/conf/all/%s = %d\n", key, value)))
	}
	return fixes
}

// sysctlFix has a file for each setting, so that none undoes another.
func sysctlFix(name, content string) Fix {
	file := "/etc/sysctl.d/90-phoenixnap-" + name + ".conf"
	return Fix{Tool: AnyTool, File: file, Content: content, Commands: []string{"sysctl -p " + file}}
}
