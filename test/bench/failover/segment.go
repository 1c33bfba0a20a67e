//go:build linux

package failover

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// The network: nodes, gateway and a bridge between them that stands for the provider's switch, and a client beyond the
// gateway.
const (
	publicLink = "public" // of a node, in the place of its VLAN interface
	echoPort   = 7000
)

var (
	block         = netip.MustParsePrefix("203.0.113.0/27")
	gateway       = netip.MustParseAddr("203.0.113.1")
	virtual       = netip.MustParseAddr("203.0.113.20") // of the Service
	clientNet     = netip.MustParsePrefix("198.51.100.1/24")
	clientAddress = netip.MustParsePrefix("198.51.100.10/24")
)

// nodeAddress is the address of a node on the public network.
func nodeAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + i)}) }

// segment is the network.
type segment struct {
	wire, gateway, client, witness *space.Space
	bridge                         *netlink.Bridge // of the switch
	nodes                          []*space.Space
	macs                           [][6]byte // of the nodes
}

// newSegment builds the network with a number of nodes.
func newSegment(nodes int) (s *segment, err error) {
	s = &segment{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for name, host := range map[string]**space.Space{"switch": &s.wire, "gateway": &s.gateway, "client": &s.client,
		"witness": &s.witness} {
		if *host, err = space.Open(name); err != nil {
			return nil, err
		}
	}
	if err = s.makeSwitch(); err != nil {
		return nil, err
	}
	for i := range nodes {
		node, err := space.Open(nodeName(i))
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, node)
		if err := s.attach(i); err != nil {
			return nil, err
		}
	}
	return s, s.route()
}

func nodeName(i int) string { return fmt.Sprintf("node-%c", 'a'+i) }

func (s *segment) close() {
	for _, each := range append(slices.Clone(s.nodes), s.wire, s.gateway, s.client, s.witness) {
		if each != nil {
			each.Close()
		}
	}
}

func (s *segment) makeSwitch() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "br"
	s.bridge = &netlink.Bridge{LinkAttrs: attributes}
	if err := s.wire.Net.LinkAdd(s.bridge); err != nil {
		return fmt.Errorf("make the switch: %w", err)
	}
	return s.wire.Up(s.bridge)
}

// cable connects two hosts.
func cable(a *space.Space, nameA string, b *space.Space, nameB string) error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB,
		PeerNamespace: netlink.NsFd(b.Fd())}
	if err := a.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect %s with %s: %w", a.Name, b.Name, err)
	}
	return errors.Join(a.Address(nameA, netip.Prefix{}), b.Address(nameB, netip.Prefix{}))
}

// plug connects a host with the switch.
func (s *segment) plug(h *space.Space, link, port string) error {
	if err := cable(h, link, s.wire, port); err != nil {
		return err
	}
	return s.connect(port, true)
}

// connect connects a port of the switch, or disconnects it: nothing passes in either direction then, and the host's own
// interface stays up.
func (s *segment) connect(port string, on bool) error {
	link, err := s.wire.Net.LinkByName(port)
	switch {
	case err != nil:
	case on:
		err = s.wire.Net.LinkSetMaster(link, s.bridge)
	default:
		err = s.wire.Net.LinkSetNoMaster(link)
	}
	if err != nil {
		return fmt.Errorf("switch port %s: %w", port, err)
	}
	return nil
}

func portOf(i int) string { return fmt.Sprintf("port-%c", 'a'+i) }

// attach makes a node: one interface on the public network by which replies leave, and kube-proxy's part, which sends
// what comes for the Service to its only endpoint, an echo on the node itself.
func (s *segment) attach(i int) error {
	node := s.nodes[i]
	if err := s.plug(node, publicLink, portOf(i)); err != nil {
		return err
	}
	if err := node.Address(publicLink, netip.PrefixFrom(nodeAddress(i), block.Bits())); err != nil {
		return err
	}
	link, err := node.Net.LinkByName(publicLink)
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", node.Name, publicLink, err)
	}
	if err := node.DefaultRoute(link, gateway); err != nil {
		return err
	}
	s.macs = append(s.macs, [6]byte(link.Attrs().HardwareAddr))
	rules := fmt.Sprintf("table ip service {\n chain prerouting {\n  type nat hook prerouting priority dstnat\n"+
		"  ip daddr %[1]s udp dport %[2]d dnat to %[3]s:%[2]d\n"+
		"  ip daddr %[1]s tcp dport %[2]d dnat to %[3]s:%[2]d\n }\n}\n", virtual, echoPort, nodeAddress(i))
	return load(node, rules)
}

// load runs nft (nftables) in a host.
func load(h *space.Space, rules string) error {
	nft, err := tools.Program("nft")
	if err != nil {
		return err
	}
	var output strings.Builder
	cmd := exec.Command(nft, "-f", "-") //nolint:noctx // it ends at once
	cmd.Stdin = strings.NewReader(rules)
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err = h.Start(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("host %s: load nftables rules: %w: %s", h.Name, err, output.String())
	}
	return nil
}

// route makes the gateway. Its ARP entries are kept for hours, as routers keep theirs: only an announcement moves an
// address.
func (s *segment) route() error {
	err := errors.Join(
		s.plug(s.gateway, publicLink, "port-gateway"),
		s.gateway.Address(publicLink, netip.PrefixFrom(gateway, block.Bits())),
		s.plug(s.witness, publicLink, "port-witness"),
		s.witness.Address(publicLink, netip.PrefixFrom(witnessAddress, block.Bits())),
		cable(s.gateway, "clients", s.client, "eth0"),
		s.gateway.Address("clients", clientNet),
		s.client.Address("eth0", clientAddress),
	)
	if err != nil {
		return err
	}
	if err := s.gateway.Sysctls(map[string]string{
		"ipv4/ip_forward": "1",
		"ipv4/neigh/" + publicLink + "/base_reachable_time_ms": "14400000",
		"ipv4/neigh/" + publicLink + "/delay_first_probe_time": "14400",
		"ipv4/conf/" + publicLink + "/send_redirects":          "0",
	}); err != nil {
		return err
	}
	link, err := s.client.Net.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("host %s: find eth0: %w", s.client.Name, err)
	}
	return s.client.DefaultRoute(link, clientNet.Addr())
}

// cut cuts the port of a node, or repairs it.
func (s *segment) cut(i int, off bool) error { return s.connect(portOf(i), !off) }

// removeAddress takes an address off a node; that it is not there is not an error.
func removeAddress(node *space.Space, address netip.Addr) error {
	link, err := node.Net.LinkByName(publicLink)
	if err == nil {
		err = node.Net.AddrDel(link, &netlink.Addr{IPNet: space.IPNet(netip.PrefixFrom(address, address.BitLen()))})
	}
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("host %s: remove %s: %w", node.Name, address, err)
	}
	return nil
}
