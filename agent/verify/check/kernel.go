package check

import (
	"fmt"
	"strings"
)

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
