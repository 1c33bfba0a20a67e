package instances

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
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
	serverID  string
	addresses map[netip.Addr]bool
}

// reportedIdentity parses the agent's annotation; without an agent, or when it is invalid, the identity is empty.
func reportedIdentity(node *corev1.Node) identity {
	var reported contract.Identity
	if json.Unmarshal([]byte(node.Annotations[contract.NodeReportedIdentity]), &reported) != nil {
		return identity{}
	}
	known := identity{serverID: reported.ServerID, addresses: map[netip.Addr]bool{}}
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
