package contract

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	providerIDPrefix = ProviderName + "://"
	// bmcPrefix is the prefix that phoenixNAP's provider for Cluster API writes (SetMachineID in its
	// controllers/closures.go).
	bmcPrefix = "bmc://servers/"
)

// Formats in which the controller writes provider IDs. It reads both.
const (
	// ProviderIDPhoenixNAP is phoenixnap://<server-id>.
	ProviderIDPhoenixNAP = "phoenixnap"
	// ProviderIDBMC is bmc://servers/<server-id>, by which phoenixNAP's provider for Cluster API finds the Node of a
	// Machine.
	ProviderIDBMC = "bmc"
)

// serverIDPattern is the form of a server ID: 24 hexadecimal digits (phoenixNAP BMC API, GET /servers).
var serverIDPattern = regexp.MustCompile(`^[0-9a-f]{24}$`)

// ProviderID returns the provider ID of a server, phoenixnap://<server-id>. It must not change: existing Nodes would
// not be recognized any more.
func ProviderID(serverID string) string { return providerIDPrefix + serverID }

// ProviderIDAs returns the provider ID of a server in a format; any but ProviderIDBMC is that of ProviderID.
func ProviderIDAs(format, serverID string) string {
	if format == ProviderIDBMC {
		return bmcPrefix + serverID
	}
	return ProviderID(serverID)
}

// ParseProviderID returns the server ID of a provider ID. It accepts phoenixnap://<id>, the bare ID and
// bmc://servers/<id>; anything else is an error, because a Node of another provider is never "gone".
func ParseProviderID(providerID string) (string, error) {
	id := providerID
	for _, prefix := range []string{providerIDPrefix, bmcPrefix} {
		if rest, found := strings.CutPrefix(providerID, prefix); found {
			id = rest
			break
		}
	}
	if !serverIDPattern.MatchString(id) {
		return "",
			fmt.Errorf("provider ID %q is not a phoenixNAP provider ID: want %s or %s and 24 hexadecimal digits",
				providerID, providerIDPrefix, bmcPrefix)
	}
	return id, nil
}

// Identity is what a machine knows about itself; the agent publishes it as the annotation
// NodeReportedIdentity and the controller uses it to find the server of a Node.
type Identity struct {
	Hostname  string       `json:"hostname"`  // the kernel's host name
	Addresses []netip.Addr `json:"addresses"` // the global unicast addresses of its interfaces
	MACs      []string     `json:"macs"`      // of its physical interfaces and bonds, in lower case
	// VLANInterfaces are the interfaces in public networks, by the ID of the network.
	VLANInterfaces map[string]VLANInterface `json:"vlanInterfaces,omitempty"`
	ServerID       string                   `json:"serverID,omitempty"` // the phoenixNAP server ID, if known
}

// VLANInterface is an interface in a public network.
type VLANInterface struct {
	Name string `json:"name"`
	// Ready reports, of a Node in several networks, that no check of this one fails: the condition is that of all.
	Ready bool `json:"ready,omitempty"`
}

// VLANInterfaceOf returns the VLAN interface that the agent of a Node reports for the public network of an ID; the zero
// value if there is none, or no report that can be read.
func VLANInterfaceOf(node *corev1.Node, networkID string) VLANInterface {
	var identity Identity
	if err := json.Unmarshal([]byte(node.Annotations[NodeReportedIdentity]), &identity); err != nil {
		return VLANInterface{}
	}
	return identity.VLANInterfaces[networkID]
}

// FindNodeCondition returns the condition of the given type, or nil.
func FindNodeCondition(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == conditionType {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// ExcludedFromLoadBalancers reports whether the Node has the label
// node.kubernetes.io/exclude-from-external-load-balancers, which excludes it from their traffic. Because Kubernetes
// only checks that the label is present, only an explicit negative value, such as "false", does not exclude.
func ExcludedFromLoadBalancers(node *corev1.Node) bool {
	value, labelled := node.Labels[corev1.LabelNodeExcludeBalancers]
	if !labelled {
		return false
	}
	excluded, err := strconv.ParseBool(value)
	return err != nil || excluded
}

// NodeIPs returns the IP addresses of the Node's status, in its order, without names.
func NodeIPs(node *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil &&
			(a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// AddressState is how an address of a Service answers on the wire.
type AddressState string

// The states that agents report.
const (
	// AddressAnswered: exactly one machine answers.
	AddressAnswered AddressState = "Answered"
	// AddressSilent: no machine answers.
	AddressSilent AddressState = "Silent"
	// AddressDuplicate: more than one machine answers.
	AddressDuplicate AddressState = "Duplicate"
)

// Reasons of the Service condition ServiceConditionAnnounced that no agent reports as a state, because they follow from
// the reports of several agents, or from what only the controller reads.
const (
	// AnnouncedForeign: the machine that answers is not a Node of the cluster.
	AnnouncedForeign = "ForeignOwner"
	// AnnouncedHolderSilent: a Node holds the address, but the others do not receive its answers.
	AnnouncedHolderSilent = "HolderSilent"
	// AnnouncedNoEndpoints: no machine answers, and the Service has no endpoints; without them, kube-vip 1.2 and newer
	// does not announce its address.
	AnnouncedNoEndpoints = "NoEndpoints"
)

// ReportedAddress is the state of one address, as one agent reports it.
type ReportedAddress struct {
	// State of the address.
	State AddressState `json:"state"`
	// MAC is the MAC address that answered, in lower case; empty when none did.
	MAC string `json:"mac,omitempty"`
	// Held reports that an interface of the reporting node has the address; MAC is then the node's own, unless the
	// state is AddressDuplicate.
	Held bool `json:"held,omitempty"`
	// Since is when the agent first observed that state.
	Since time.Time `json:"since"`
}

// ReportedAddresses is one agent's report on the addresses that it watches, the value of NodeReportedAddresses.
type ReportedAddresses map[netip.Addr]ReportedAddress

// Encode returns the value of the annotation NodeReportedAddresses; empty when there is nothing to report.
func (r ReportedAddresses) Encode() (string, error) {
	if len(r) == 0 {
		return "", nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", NodeReportedAddresses, err)
	}
	return string(raw), nil
}

// ParseReportedAddresses reads the annotation NodeReportedAddresses; nil without an error when it is empty.
func ParseReportedAddresses(raw string) (ReportedAddresses, error) {
	if raw == "" {
		return nil, nil
	}
	var reported ReportedAddresses
	if err := json.Unmarshal([]byte(raw), &reported); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", NodeReportedAddresses, err)
	}
	return reported, nil
}
