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
		Causes: []string{
			"The distribution's default is strict filtering.", "A hardening profile set it.",
			"The node has no default route.",
		},
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

// effective combines the settings of "all" and of the VLAN interface as the kernel does
// (Documentation/networking/ip-sysctl.rst): the greater value, for flags the logical or.
func (v view) effective() (Settings, bool) {
	all, hasAll := v.Settings["all"]
	own, hasOwn := v.Settings[v.vlan.Name]
	return Settings{
		RPFilter:    max(all.RPFilter, own.RPFilter),
		ARPIgnore:   max(all.ARPIgnore, own.ARPIgnore),
		ARPAnnounce: max(all.ARPAnnounce, own.ARPAnnounce),
		ARPFilter:   all.ARPFilter | own.ARPFilter,
		ProxyARP:    all.ProxyARP | own.ProxyARP,

		ForwardingOff:      own.ForwardingOff,
		AcceptLocal:        all.AcceptLocal | own.AcceptLocal,
		PromoteSecondaries: all.PromoteSecondaries | own.PromoteSecondaries,
		SrcValidMark:       max(all.SrcValidMark, own.SrcValidMark),
	}, hasAll && hasOwn
}

// checkSetting checks the effective settings, or reports that they could not be read.
func checkSetting(v view, check func(Settings) outcome) outcome {
	settings, read := v.effective()
	if !read {
		return undetermined(reasonUnreadable, "the settings of "+v.vlan.Name+" under net/ipv4/conf could not be read")
	}
	return check(settings)
}

func (v view) setting(key string, all, own int) string {
	return fmt.Sprintf("%s: all=%d, %s=%d", key, all, v.vlan.Name, own)
}

// checkReversePath: strict filtering (1) drops a client's packet whose reply would leave by another interface
// (RFC 3704), so it is harmless only where the default route leads through the VLAN; loose filtering (2) drops what no
// route leads back to. The kernel's own answer for such a packet outweighs the settings.
func checkReversePath(v view) outcome {
	return checkSetting(v, func(s Settings) outcome {
		observed := v.setting("rp_filter", v.Settings["all"].RPFilter, v.Settings[v.vlan.Name].RPFilter)
		refused, passes, known := v.accepted()
		strict := s.RPFilter == 1
		switch {
		case known && passes && strict:
			return ok(observed + " (strict, but the kernel accepts packets of clients)")
		case known && passes:
			return ok(observed + "; the kernel accepts packets of clients")
		case known && !strict:
			return outcome{status: Fail, reason: "NoRouteToClients", expected: "a route back to every client",
				observed: observed + "; " + evidence(refused),
				cause:    "no route leads back to clients, so their packets are dropped on " + v.vlan.Name,
				fixes:    fixNoRoute(v)}
		case !known && (!strict || v.defaultIsVLAN()):
			return ok(observed)
		default:
			if known {
				observed += "; " + evidence(refused)
			}
			return outcome{status: Fail, reason: "StrictReversePath", expected: "rp_filter=2 (loose)",
				observed: observed,
				cause:    "strict reverse path filtering on " + v.vlan.Name + " drops service traffic",
				fixes:    fixSysctl(v.vlan.Name, "rp_filter", 2, false)}
		}
	})
}

// evidence writes a look-up that was refused.
func evidence(r RouteAnswer) string {
	return fmt.Sprintf("look-up of %s from %s by %s: %s", r.Destination, r.Source, r.Iif, r.Error)
}

// checkARPAnswering: arp_ignore 3 to 8 silences the kernel for addresses as kube-vip adds them; 2 answers only
// senders of the address' own subnet, which a /32 has none of.
func checkARPAnswering(v view) outcome {
	if name := v.vlan.Name; v.vlan.NoARP {
		return outcome{status: Fail, reason: "ARPOff", expected: "ARP on " + name, observed: "the flag NOARP",
			cause: "ARP is turned off on " + name, fixes: perTool([]string{"ip link set " + name + " arp on"},
				"remove the setting from the configuration (ARP=no in networkd's .network file), too")}
	}
	return checkSetting(v, func(s Settings) outcome {
		observed := v.setting("arp_ignore", v.Settings["all"].ARPIgnore, v.Settings[v.vlan.Name].ARPIgnore) +
			fmt.Sprintf("; arp_filter=%d", s.ARPFilter)
		o := outcome{expected: "arp_ignore=0 or 1, arp_filter=0", observed: observed}
		switch {
		case s.ARPIgnore > 2:
			o.status = Fail
			o.reason = "ARPIgnored"
			o.cause = fmt.Sprintf("arp_ignore=%d keeps %s from answering ARP for service addresses", s.ARPIgnore,
				v.vlan.Name)
			o.fixes = fixSysctl(v.vlan.Name, "arp_ignore", 1, v.Settings["all"].ARPIgnore > 1)
		case s.ARPIgnore == 2:
			o.status = Warn
			o.reason = "ARPRestricted"
			o.cause = "arp_ignore=2 may keep " + v.vlan.Name + " from answering the gateway for service addresses"
			o.fixes = fixSysctl(v.vlan.Name, "arp_ignore", 1, v.Settings["all"].ARPIgnore > 1)
		case s.ARPFilter != 0 && !v.defaultIsVLAN():
			o.status = Warn
			o.reason = "ARPFiltered"
			o.cause = "with arp_filter=1, " + v.vlan.Name + " answers only senders that it routes to"
			o.fixes = fixSysctl(v.vlan.Name, "arp_filter", 0, v.Settings["all"].ARPFilter != 0)
		default:
			return ok(observed)
		}
		return o
	})
}

func checkARPSource(v view) outcome {
	return checkSetting(v, func(s Settings) outcome {
		observed := v.setting("arp_announce", v.Settings["all"].ARPAnnounce, v.Settings[v.vlan.Name].ARPAnnounce)
		if s.ARPAnnounce >= 1 || !v.lacksOwnAddress() {
			return ok(observed)
		}
		return outcome{status: Warn, reason: "ARPSourceForeign", expected: "arp_announce=2", observed: observed,
			cause: v.vlan.Name +
				" may send ARP requests from an address of another network, which the gateway may ignore",
			fixes: fixSysctl(v.vlan.Name, "arp_announce", 2, false)}
	})
}

// lacksOwnAddress reports whether the node has no address of its own here, so that the kernel must borrow one.
func (v view) lacksOwnAddress() bool { return len(v.own) == 0 }

// checkStrictARP: IPVS puts every service address on the interface kube-ipvs0 of every node, and with arp_ignore=0
// every node answers for them (kube-proxy, option ipvs.strictARP).
func checkStrictARP(v view) outcome {
	if v.LinkNamed(ipvsInterface) == nil {
		return notApplicable("kube-proxy does not use IPVS")
	}
	return checkSetting(v, func(s Settings) outcome {
		observed := v.setting("arp_ignore", v.Settings["all"].ARPIgnore, v.Settings[v.vlan.Name].ARPIgnore)
		if s.ARPIgnore >= 1 {
			return ok(observed)
		}
		return outcome{status: Fail, reason: "StrictARPMissing", expected: "arp_ignore=1", observed: observed,
			cause: "with IPVS and arp_ignore=0 every node answers for every service address",
			fixes: append([]Fix{{Tool: AnyTool, Note: "set ipvs.strictARP: true in the configuration of kube-proxy"}},
				fixSysctl(v.vlan.Name, "arp_ignore", 1, false)...)}
	})
}

func checkForwarding(v view) outcome {
	for _, unread := range v.Unread {
		if strings.HasPrefix(unread, "net/ipv4/ip_forward") {
			return undetermined(reasonUnreadable, unread)
		}
	}
	if v.IPForward {
		return checkForwardingHere(v)
	}
	return outcome{status: Fail, reason: "ForwardingOff", expected: "ip_forward=1", observed: "ip_forward=0",
		cause: "the kernel does not forward packets, so services do not reach pods",
		fixes: []Fix{sysctlFix("ip_forward", "net.ipv4.ip_forward = 1\n")}}
}

// checkForwardingHere: the switch of one interface outweighs the general one.
func checkForwardingHere(v view) outcome {
	if v.vlan == nil || !v.Settings[v.vlan.Name].ForwardingOff {
		return ok("ip_forward=1")
	}
	name := v.vlan.Name
	return outcome{status: Fail, reason: "ForwardingOffHere", expected: "forwarding=1 on " + name,
		observed: "ip_forward=1, forwarding=0 on " + name,
		cause:    "the kernel does not forward what comes in by " + name + ", so services do not reach pods",
		fixes:    fixSysctl(name, "forwarding", 1, false)}
}

func checkProxyARP(v view) outcome {
	return checkSetting(v, func(s Settings) outcome {
		observed := v.setting("proxy_arp", v.Settings["all"].ProxyARP, v.Settings[v.vlan.Name].ProxyARP)
		if s.ProxyARP == 0 {
			return ok(observed)
		}
		return outcome{status: Warn, reason: "ProxyARP", expected: "proxy_arp=0", observed: observed,
			cause: v.vlan.Name + " answers ARP for addresses that are not the node's",
			fixes: fixSysctl(v.vlan.Name, "proxy_arp", 0, v.Settings["all"].ProxyARP != 0)}
	})
}

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
