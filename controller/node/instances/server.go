package instances

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// matchError explains why no server, or more than one, belongs to a Node.
type matchError struct{ reason, text string }

func (e *matchError) Error() string { return e.text }

// match finds the server of a Node that has no provider ID yet: by hostname (exact, then without domain, then both
// ignoring case), else by the identity that the machine reported. It never guesses: no candidate or several are an
// error. claimed contains the servers of other Nodes' provider IDs, with the Node's name.
func match(node *corev1.Node, servers map[string]pnap.Server, claimed map[string]string) (pnap.Server, error) {
	candidates := free(servers, claimed)
	identity := reportedIdentity(node)
	for _, same := range []func(a, b string) bool{sameName, sameHost, strings.EqualFold, sameHostFolded} {
		found := slices.DeleteFunc(slices.Clone(candidates),
			func(s pnap.Server) bool { return !same(s.Hostname, node.Name) })
		if fitting := identity.fitting(found); len(found) > 1 && len(fitting) > 0 {
			found = fitting
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return pnap.Server{}, ambiguous("have its name", found)
		}
	}
	found := identity.fitting(candidates)
	switch len(found) {
	case 0:
		return pnap.Server{}, notFound(node, servers, claimed)
	case 1:
		return found[0], nil
	default:
		return pnap.Server{}, ambiguous("have addresses that it reports", found)
	}
}

// free returns the servers that may belong to a new Node, by ID.
func free(servers map[string]pnap.Server, claimed map[string]string) []pnap.Server {
	var candidates []pnap.Server
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		status := servers[id].Status
		if claimed[id] == "" && status != pnap.ServerReserved && status != pnap.ServerDeleting {
			candidates = append(candidates, servers[id])
		}
	}
	return candidates
}

func sameName(hostname, node string) bool { return hostname == node }

// sameHost compares the first labels when at least one side has no domain. Two different domains are two machines.
func sameHost(hostname, node string) bool {
	a, domainA, _ := strings.Cut(hostname, ".")
	b, domainB, _ := strings.Cut(node, ".")
	return a != "" && a == b && (domainA == "" || domainB == "")
}

func sameHostFolded(hostname, node string) bool {
	return sameHost(strings.ToLower(hostname), strings.ToLower(node))
}

// identity is the report of a Node's machine, prepared for comparison.
type identity struct {
	serverID, hostname string
	addresses          map[netip.Addr]bool
}

// reportedIdentity parses the agent's annotation; without an agent, or when it is invalid, the identity is empty.
func reportedIdentity(node *corev1.Node) identity {
	var reported contract.Identity
	if json.Unmarshal([]byte(node.Annotations[contract.NodeReportedIdentity]), &reported) != nil {
		return identity{}
	}
	known := identity{serverID: reported.ServerID, hostname: reported.Hostname, addresses: map[netip.Addr]bool{}}
	for _, address := range reported.Addresses {
		known.addresses[address.Unmap()] = true
	}
	return known
}

// fitting returns those servers that match the machine's report.
func (i identity) fitting(servers []pnap.Server) []pnap.Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s pnap.Server) bool {
		if i.serverID != "" {
			return i.serverID != s.ID
		}
		return !slices.ContainsFunc(allAddresses(s), func(a netip.Addr) bool { return i.addresses[a.Unmap()] })
	})
}

func ambiguous(what string, found []pnap.Server) error {
	return &matchError{reason: ReasonServerAmbiguous, text: fmt.Sprintf(
		"several phoenixNAP servers %s: %s; set spec.providerID of the Node to %s",
		what, describe(found), contract.ProviderID("<server-id>"))}
}

// notFound lists the servers that have the name but belong to another Node or are not running machines any more.
func notFound(node *corev1.Node, servers map[string]pnap.Server, claimed map[string]string) error {
	var near []string
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		server := servers[id]
		if !strings.EqualFold(server.Hostname, node.Name) && !sameHostFolded(server.Hostname, node.Name) {
			continue
		}
		why := "status " + string(server.Status)
		if claimed[id] != "" {
			why = "the server of Node " + claimed[id]
		}
		near = append(near, fmt.Sprintf("%s (%s)", id, why))
	}
	text := fmt.Sprintf("no phoenixNAP server of the account has the hostname %q or an address that the machine "+
		"reports", node.Name)
	if len(near) > 0 {
		text += "; not considered: " + strings.Join(near, ", ")
	}
	return &matchError{reason: ReasonServerNotFound,
		text: text + "; rename the server or set spec.providerID of the Node"}
}

func describe(servers []pnap.Server) string {
	names := make([]string, len(servers))
	for i, server := range servers {
		names[i] = fmt.Sprintf("%s (%s in %s)", server.ID, server.Hostname, server.Location)
	}
	return strings.Join(names, ", ")
}

// nodeAddresses returns the addresses of a Node: hostname, internal, external, in a stable order. The
// hostname is the kubelet's, since a server can be renamed in the portal while the machine runs. What the kubelet names
// (--node-ip) is external only if the API lists it as public: where an external one is named, the framework drops the
// others.
func nodeAddresses(node *corev1.Node, server pnap.Server) []corev1.NodeAddress {
	reported := reportedIdentity(node)
	external := externalIPs(server, reported)
	internal := slices.Clone(server.PrivateIPs)
	if len(internal)+len(external) == 0 {
		internal = reported.private()
	}
	for _, ip := range providedNodeIPs(node) {
		if slices.Contains(internal, ip) || slices.Contains(external, ip) {
			continue
		}
		if slices.Contains(publicIPs(server), ip) {
			external = append(external, ip)
		} else {
			internal = append(internal, ip)
		}
	}
	hostname := cmp.Or(node.Labels[corev1.LabelHostname], node.Name)
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: hostname}}
	addresses = appendIPs(addresses, node, corev1.NodeInternalIP, internal)
	return appendIPs(addresses, node, corev1.NodeExternalIP, external)
}

// appendIPs appends addresses, each once. Those that the Node already has precede, in their current order: clients use
// the first one, and a different order in the API must not cause a write.
func appendIPs(addresses []corev1.NodeAddress, node *corev1.Node, kind corev1.NodeAddressType,
	ips []netip.Addr) []corev1.NodeAddress {
	place := func(ip netip.Addr) int {
		at := slices.Index(node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: ip.String()})
		if at < 0 {
			return len(node.Status.Addresses)
		}
		return at
	}
	ordered := slices.Clone(ips)
	slices.SortStableFunc(ordered, func(a, b netip.Addr) int { return place(a) - place(b) })
	for _, ip := range ordered {
		address := corev1.NodeAddress{Type: kind, Address: ip.String()}
		if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// withoutNetwork reports whether the API cannot know an address of the server: its owner configures the networks.
func withoutNetwork(server pnap.Server) bool {
	return server.NetworkType == "NONE" || server.NetworkType == "USER_DEFINED"
}

// externalIPs returns the public addresses that the machine probably has: those that its agent reports, else the first
// of a block, because the API lists every usable one.
func externalIPs(server pnap.Server, reported identity) []netip.Addr {
	var joined []netip.Addr
	for _, membership := range server.PublicNetworks {
		joined = append(joined, membership.IPs...)
	}
	own := slices.DeleteFunc(slices.Clone(server.PublicIPs), func(ip netip.Addr) bool {
		return ip == server.GatewayAddress || slices.Contains(joined, ip)
	})
	external := pick(own, reported)
	for _, membership := range server.PublicNetworks {
		if membership.Status == pnap.MembershipAssigned {
			external = append(external, pick(membership.IPs, reported)...)
		}
	}
	return external
}

// pick returns those addresses that the machine reports, else the lowest of each family.
func pick(ips []netip.Addr, reported identity) []netip.Addr {
	ips = slices.Clone(ips)
	slices.SortFunc(ips, netip.Addr.Compare) // the API promises no order
	held := slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return !reported.addresses[ip.Unmap()] })
	if len(held) > 0 {
		return held
	}
	var first []netip.Addr
	for _, ip := range ips {
		if !slices.ContainsFunc(first, func(other netip.Addr) bool { return other.Is4() == ip.Is4() }) {
			first = append(first, ip)
		}
	}
	return first
}

// private returns the reported private addresses. Public ones may be addresses of Services.
func (i identity) private() []netip.Addr {
	ips := slices.SortedFunc(maps.Keys(i.addresses), netip.Addr.Compare)
	return slices.DeleteFunc(ips, func(ip netip.Addr) bool { return !contract.IsPrivate(ip) })
}

// providedNodeIPs returns the addresses of the kubelet's --node-ip. The framework permanently rejects a Node whose
// addresses lack one of them. A kubelet gains nothing from a false value: it may write its Node's addresses itself.
func providedNodeIPs(node *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, text := range strings.Split(node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr], ",") {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// publicIPs returns the addresses that the API lists as public.
func publicIPs(server pnap.Server) []netip.Addr {
	public := slices.Clone(server.PublicIPs)
	for _, membership := range server.PublicNetworks {
		public = append(public, membership.IPs...)
	}
	return public
}

// allAddresses returns every address of a server in the API, each once.
func allAddresses(server pnap.Server) []netip.Addr {
	all := slices.Concat(server.PrivateIPs, publicIPs(server))
	var each []netip.Addr
	for _, ip := range all {
		if !slices.Contains(each, ip) {
			each = append(each, ip)
		}
	}
	return each
}

// foreignNodeIPs returns the addresses of --node-ip that the server does not have in the API.
func foreignNodeIPs(node *corev1.Node, server pnap.Server) []netip.Addr {
	known := allAddresses(server)
	return slices.DeleteFunc(providedNodeIPs(node), func(ip netip.Addr) bool { return slices.Contains(known, ip) })
}

func join(ips []netip.Addr) string {
	if len(ips) == 0 {
		return "none"
	}
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	return strings.Join(texts, ", ")
}

// Labels returns the labels under phoenixnap.com/ that a server's Node gets. A value that cannot be made
// legal is dropped: an illegal label would prevent the initialization of the Node.
func Labels(server pnap.Server) map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		contract.NodeLocation:    server.Location,
		contract.NodeServerType:  server.Type,
		contract.NodeOS:          server.OS,
		contract.NodeNetworkType: server.NetworkType,
	} {
		if legal := labelValue(value); legal != "" {
			labels[name] = legal
		}
	}
	return labels
}

// Zone returns the zone of a Node: that of its labels, else the location of its server, made legal. The framework would
// overwrite the kubelet's zone, but volumes on it outlive a Node that is registered again. The deprecated label counts
// first, because the framework keeps the other one equal to it.
func Zone(node *corev1.Node, server pnap.Server) string {
	for _, name := range []string{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone} {
		if zone, exists := node.Labels[name]; exists {
			return zone
		}
	}
	return labelValue(server.Location)
}

// labelValue replaces characters that a label value may not contain by "-" and shortens it to the allowed length.
func labelValue(raw string) string {
	legal := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		default:
			return '-'
		}
	}, raw)
	legal = legal[:min(len(legal), validation.LabelValueMaxLength)]
	return strings.Trim(legal, "-_.")
}
