package check

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

// kernelChecks are about settings of the kernel.
func kernelChecks() []Check {
	return []Check{
		{
			ID: ReversePath, Title: "the reverse path filter accepts service traffic", Severity: Error,
			DependsOn: []ID{VLANInterface}, evaluate: checkReversePath,
			Meaning: "The kernel accepts what clients send to the VLAN interface: reverse path filtering is not " +
				"strict (`rp_filter`, the greater of `all` and the interface) or the route back leaves by it, and a " +
				"route back exists. The check uses route look-ups and sends no traffic.",
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
			Meaning: "The kernel does not send ARP requests from an address of another network, which a router may " +
				"ignore.",
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
			Meaning: "The kernel forwards packets to pods (`net.ipv4.ip_forward=1`), also those that arrive on the " +
				"VLAN interface (`forwarding=1`).",
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
			Meaning: "Packets that claim to come from this node are dropped (`accept_local=0`), and where the " +
				"interface has several addresses of one subnet, the others stay when the first is deleted " +
				"(`promote_secondaries=1`).",
			Causes:  []string{"A set-up guide of another load balancer, or an old distribution's defaults."},
			Remedy:  "Set `accept_local=0` and `promote_secondaries=1`.",
			Reasons: []string{"AcceptLocal", "SecondariesLost", reasonUnreadable},
		},
	}
}
