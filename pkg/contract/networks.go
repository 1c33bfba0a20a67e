package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// MaxNodeNetworks bounds the public networks of one Node: all annotations of an object are 256 KiB at most.
const MaxNodeNetworks = 64

// NetworkBlock is one IP block of the public network.
type NetworkBlock struct {
	CIDR    netip.Prefix // the block
	Gateway netip.Addr   // the address of phoenixNAP's router in the block
}

// blockAround is the block in which an address is. Its gateway is the first usable address, as phoenixNAP assigns them.
func blockAround(address netip.Prefix) NetworkBlock {
	cidr := address.Masked()
	return NetworkBlock{CIDR: cidr, Gateway: cidr.Addr().Next()}
}

// blockOf is the index of the first block in which an address is, negative if there is none.
func blockOf(blocks []NetworkBlock, address netip.Addr) int {
	return slices.IndexFunc(blocks, func(b NetworkBlock) bool { return b.CIDR.Contains(address) })
}

// NodeNetwork is what the controller publishes about one public network for the agent of a Node.
type NodeNetwork struct {
	ServerID  string         // the ID of the phoenixNAP server that the Node runs on
	Name      string         // the name of the PublicNetwork
	ID        string         // the ID of the public network
	VLAN      int            // its VLAN ID, 1 to 4094 (802.1Q); networks of two locations may have the same
	IPs       []netip.Addr   // the addresses of the server's membership; empty when it has none
	Member    bool           // Member reports whether the server is an assigned member of the network
	Blocks    []NetworkBlock // of the network; the annotation has those in which IPs are, IPBlocks the others
	Announcer string         // AnnouncerKubeVIP, AnnouncerAgent or AnnouncerNone
}

// NetworkAnnotations are the annotations of a Node that describe its server and the public networks.
func NetworkAnnotations() []string { return []string{NodeServerID, NodePublicNetworks} }

// networkEntry is a NodeNetwork in the annotation NodePublicNetworks.
type networkEntry struct {
	Name      string   `json:"name"`
	ID        string   `json:"id"`
	VLAN      int      `json:"vlan"`
	IPs       []string `json:"ips"`
	Member    bool     `json:"member"`
	Announcer string   `json:"announcer"`
}

// EncodePublicNetworks returns the value of the annotation NodePublicNetworks. Equal facts give equal text, whatever
// the order of the networks. The error is that of ParsePublicNetworks, which would refuse the value.
func EncodePublicNetworks(networks []NodeNetwork) (string, error) {
	entries := make([]networkEntry, len(networks))
	for i, n := range networks {
		entries[i] = n.entry()
	}
	slices.SortFunc(entries, func(a, b networkEntry) int { return compareNames(a.Name, b.Name) })
	if err := validNetworks(entries); err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", NodePublicNetworks, err)
	}
	raw, err := json.Marshal(entries)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", NodePublicNetworks, err)
	}
	return string(raw), nil
}

// compareNames puts the name of the default network before all others.
func compareNames(a, b string) int {
	rank := func(name string) int {
		if name == v1beta1.DefaultNetwork {
			return 0
		}
		return 1
	}
	return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b))
}

// entry encodes n. An address has the prefix length of its block, if that is known.
func (n NodeNetwork) entry() networkEntry {
	ips := make([]string, len(n.IPs))
	for i, ip := range n.IPs {
		ips[i] = ip.String()
		if at := blockOf(n.Blocks, ip); at >= 0 {
			ips[i] = netip.PrefixFrom(ip, n.Blocks[at].CIDR.Bits()).String()
		}
	}
	return networkEntry{Name: n.Name, ID: n.ID, VLAN: n.VLAN, IPs: ips, Member: n.Member, Announcer: n.Announcer}
}

// ParsePublicNetworks returns the public networks that the controller has published on a Node, in the order of the
// annotation: default first. The list is empty when load balancers are off, and ok is false when nothing has been
// published yet. One entry that cannot be read makes the whole list unusable: what is not read must not pass for a
// network that the server has left. The error contains the annotation, the network and the value.
func ParsePublicNetworks(annotations map[string]string) (list []NodeNetwork, ok bool, err error) {
	raw, ok := annotations[NodePublicNetworks]
	if !ok {
		return nil, false, nil
	}
	list, err = parseNetworks(raw, annotations[NodeServerID])
	if err != nil {
		return nil, false, fmt.Errorf("annotation %s: %w", NodePublicNetworks, err)
	}
	return list, true, nil
}

func parseNetworks(raw, serverID string) ([]NodeNetwork, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal([]byte(raw), &texts); err != nil || texts == nil {
		return nil, fmt.Errorf("%s is not a JSON list of public networks", text.Quote(raw))
	}
	entries := make([]networkEntry, len(texts))
	for i, each := range texts {
		// What can be read of an entry is filled in, so that its name is known.
		if err := json.Unmarshal(each, &entries[i]); err != nil {
			return nil, fmt.Errorf("public network %s: %s: %w", entries[i].label(i), text.Quote(string(each)), err)
		}
	}
	if err := validNetworks(entries); err != nil {
		return nil, err
	}
	list := make([]NodeNetwork, len(entries))
	for i, e := range entries {
		ips, blocks, err := parseIPs(e.IPs)
		if err != nil {
			return nil, fmt.Errorf("public network %s: %w", e.label(i), err)
		}
		list[i] = NodeNetwork{ServerID: serverID, Name: e.Name, ID: e.ID, VLAN: e.VLAN, IPs: ips,
			Member: e.Member, Blocks: blocks, Announcer: e.Announcer}
	}
	return list, nil
}

// label is how messages call the entry at an index of the list.
func (e networkEntry) label(index int) string {
	if e.Name == "" {
		return fmt.Sprintf("number %d", index+1)
	}
	return text.Quote(e.Name)
}

// validNetworks refuses what cannot be public networks of one Node.
func validNetworks(entries []networkEntry) error {
	if len(entries) > MaxNodeNetworks {
		return fmt.Errorf("%d public networks, more than %d", len(entries), MaxNodeNetworks)
	}
	for i, e := range entries {
		before := entries[:i]
		switch {
		case e.Name == "" || e.ID == "":
			return fmt.Errorf("public network %s: name %s and ID %s must not be empty", e.label(i), text.Quote(e.Name),
				text.Quote(e.ID))
		case e.VLAN < 1 || e.VLAN > 4094:
			return fmt.Errorf("public network %s: %d is not a VLAN ID from 1 to 4094", e.label(i), e.VLAN)
		case slices.ContainsFunc(before, func(b networkEntry) bool { return b.Name == e.Name }):
			return fmt.Errorf("public network %s: the name occurs twice", e.label(i))
		case slices.ContainsFunc(before, func(b networkEntry) bool { return b.ID == e.ID }):
			return fmt.Errorf("public network %s: the ID %s occurs twice", e.label(i), text.Quote(e.ID))
		}
	}
	return nil
}

// parseIPs reads addresses, and the blocks of those that have a prefix length.
func parseIPs(texts []string) (ips []netip.Addr, blocks []NetworkBlock, err error) {
	for _, each := range texts {
		if !strings.Contains(each, "/") {
			ip, err := netip.ParseAddr(each)
			if err != nil {
				return nil, nil, fmt.Errorf("%s is not an IP address", text.Quote(each))
			}
			ips = append(ips, ip)
			continue
		}
		prefix, err := netip.ParsePrefix(each)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is not an IP address with a prefix length", text.Quote(each))
		}
		ips = append(ips, prefix.Addr())
		if !prefix.IsSingleIP() && blockOf(blocks, prefix.Addr()) < 0 {
			blocks = append(blocks, blockAround(prefix))
		}
	}
	return ips, blocks, nil
}

// NodeNetworkOf returns the public network with an ID that the controller has published on a Node. Without an ID it is
// the first one, for those who deal with one network and do not know which. ok is false when none is published; the
// error is that of ParsePublicNetworks.
func NodeNetworkOf(annotations map[string]string, networkID string) (n NodeNetwork, ok bool, err error) {
	list, _, err := ParsePublicNetworks(annotations)
	if err != nil {
		return NodeNetwork{}, false, err
	}
	n, ok = networkIn(list, networkID)
	return n, ok, nil
}

func networkIn(list []NodeNetwork, networkID string) (n NodeNetwork, ok bool) {
	at := slices.IndexFunc(list, func(n NodeNetwork) bool { return networkID == "" || n.ID == networkID })
	if at < 0 {
		return NodeNetwork{}, false
	}
	return list[at], true
}
