package vlan

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

const (
	// publicMTU is what passes on the way to the Internet, in bytes.
	publicMTU = 1500
	// maxName is the longest name of an interface (IFNAMSIZ less the final zero).
	maxName = 15
)

// want is what the node must have. The zero value means that the agent owns nothing there.
type want struct {
	// ID is the VLAN ID, 0 when no interface is wanted.
	ID int
	// Uplink is the index of the link that carries it.
	Uplink int
	// Name is that of the interface when it must be made; Fixed is set when no other name is accepted.
	Name  string
	Fixed bool
	// Addresses with their prefix lengths.
	Addresses []netip.Prefix
	// Fallback is an address for an interface without any other: the kernel neither sends nor answers ARP requests
	// properly on an interface without an address.
	Fallback netip.Prefix
	// NoBlock are addresses of the membership that are in no assigned block, so that their prefix length is unknown.
	NoBlock []netip.Addr
	// Virtual are addresses of Services.
	Virtual []netip.Addr
}

// wanted returns what the node, whose uplink has that index and name, must have.
func wanted(e check.Expected, uplink check.Link) want {
	w := want{ID: e.Network.VLAN, Uplink: uplink.Index, Name: e.Interface, Fixed: e.Interface != "", Virtual: e.Virtual}
	if w.Name == "" {
		w.Name = nameFor(uplink.Name, w.ID)
	}
	for i, ip := range e.Network.IPs {
		if !ip.Is4() || slices.Contains(e.Network.IPs[:i], ip) {
			continue
		}
		if bits, known := prefixLength(e, ip); known {
			w.Addresses = append(w.Addresses, netip.PrefixFrom(ip, bits))
		} else {
			w.NoBlock = append(w.NoBlock, ip)
		}
	}
	if len(w.Addresses) == 0 {
		w.Fallback = netip.PrefixFrom(LinkLocal(e.Network.ServerID), 32)
	}
	return w
}

func prefixLength(e check.Expected, ip netip.Addr) (bits int, known bool) {
	for _, b := range e.Network.Blocks {
		if b.CIDR.Contains(ip) {
			return b.CIDR.Bits(), true
		}
	}
	return 0, false
}

// nameFor is the customary name of a VLAN interface, if it is short enough.
func nameFor(uplink string, id int) string {
	if name := fmt.Sprintf("%s.%d", uplink, id); len(name) <= maxName {
		return name
	}
	return fmt.Sprintf("vlan%d", id)
}

// LinkLocal is the address that the VLAN interface of a server without an address of its own carries, with prefix
// length 32 and scope link. It lies in 169.254.1.0 to 169.254.254.255 (RFC 3927, section 2.1) and follows from the
// server's ID.
func LinkLocal(serverID string) netip.Addr {
	sum := sha256.Sum256([]byte(serverID))
	return netip.AddrFrom4([4]byte{169, 254, 1 + sum[0]%254, sum[1]})
}

// settingsFor are the settings that an interface with these settings must have. arp_ignore may be 1, as kube-proxy's
// strictARP sets it.
func settingsFor(has ownership.Settings) ownership.Settings {
	settings := ownership.Settings{
		ownership.RPFilter: 2, ownership.ARPIgnore: has[ownership.ARPIgnore], ownership.ARPFilter: 0,
		ownership.ARPAnnounce: 2,
		ownership.ProxyARP:    0, ownership.AcceptLocal: 0, ownership.PromoteSecondaries: 1,
	}
	if settings[ownership.ARPIgnore] > 1 || settings[ownership.ARPIgnore] < 0 {
		settings[ownership.ARPIgnore] = 1
	}
	return settings
}
