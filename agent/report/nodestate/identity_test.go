package nodestate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func TestIdentity(t *testing.T) {
	at := func(link int, prefix string, deprecated bool) check.Address {
		return check.Address{LinkIndex: link, Prefix: netip.MustParsePrefix(prefix), Deprecated: deprecated}
	}
	s := check.Snapshot{
		Hostname: "worker-1",
		Machine:  check.Machine{ServerID: "0123456789abcdef01234567"},
		Links: []check.Link{
			{Index: 1, Name: "lo", Type: "device"},
			{Index: 2, Name: "eno1", Type: "device", MAC: "02:00:00:00:00:01", Master: 4,
				Slave: &check.Slave{PermanentMAC: "02:00:00:00:00:02"}},
			{Index: 3, Name: "eno2", Type: "device", MAC: "02:00:00:00:00:01", Master: 4,
				Slave: &check.Slave{PermanentMAC: "02:00:00:00:00:01"}},
			{Index: 4, Name: "bond0", Type: "bond", MAC: "02:00:00:00:00:01"},
			{Index: 5, Name: "bond0.11", Type: "vlan", MAC: "02:00:00:00:00:05", VLAN: &check.VLAN{ID: 11}},
			{Index: 6, Name: "bond0.100", Type: "vlan", MAC: "02:00:00:00:00:01", VLAN: &check.VLAN{ID: 100}},
			{Index: 7, Name: "cni0", Type: "bridge", MAC: "02:00:00:00:00:07"},
			{Index: 8, Name: "veth1", Type: "veth", MAC: "02:00:00:00:00:08", Master: 7},
			{Index: 9, Name: "kube-ipvs0", Type: "dummy"},
		},
		Addresses: []check.Address{
			at(1, "127.0.0.1/8", false), at(6, "192.0.2.2/28", false), at(6, "203.0.113.3/32", true),
			at(6, "203.0.113.4/29", false),
			at(5, "10.0.0.11/24", false), at(5, "fe80::1/64", false), at(6, "2001:db8::2/64", false),
			at(7, "10.244.1.1/24", false), at(9, "203.0.113.3/32", false),
		},
	}
	got := identityOf(sampleOf(s, check.Report{Interface: "bond0.100", Uplink: "bond0"}),
		[]netip.Addr{netip.MustParseAddr("203.0.113.4")})
	want := contract.Identity{
		Hostname: "worker-1",
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("192.0.2.2"),
			netip.MustParseAddr("2001:db8::2")},
		MACs:           []string{"02:00:00:00:00:01", "02:00:00:00:00:02"},
		VLANInterfaces: map[string]contract.VLANInterface{"n": {Name: "bond0.100"}},
		ServerID:       "0123456789abcdef01234567",
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}

// sampleOf is a sample for a public network whose ID is n.
func sampleOf(s check.Snapshot, report check.Report) sampler.Sample {
	return sampler.Sample{Snapshot: s, Report: report,
		Expected: check.Expected{Network: contract.NodeNetwork{ID: "n"}}}
}

// TestUplinkOfAnyKind: a machine whose uplink is neither physical nor a bond still knows its addresses.
func TestUplinkOfAnyKind(t *testing.T) {
	s := check.Snapshot{
		Links: []check.Link{
			{Index: 1, Name: "br-lan", Type: "bridge", MAC: "02:00:00:00:00:01"},
			{Index: 2, Name: "port", Type: "veth", MAC: "02:00:00:00:00:02", Master: 1},
		},
		Addresses: []check.Address{{LinkIndex: 1, Prefix: netip.MustParsePrefix("10.0.0.11/24")}},
	}
	got := identityOf(sampleOf(s, check.Report{Uplink: "br-lan"}), nil)
	if len(got.Addresses) != 1 || len(got.MACs) != 2 {
		t.Errorf("identity is %+v, want the uplink's address and both hardware addresses", got)
	}
}

// TestIdentityIsBounded: the identity of every machine is small, and does not depend on the order in which the kernel
// lists it.
func TestIdentityIsBounded(t *testing.T) {
	s := check.Snapshot{Hostname: "worker-1"}
	address := netip.MustParseAddr("2001:db8::1")
	for i := range 5000 {
		s.Links = append(s.Links, check.Link{Index: i + 1, Name: fmt.Sprint("eth", i), Type: "device",
			MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff)})
		address = address.Next()
		s.Addresses = append(s.Addresses, check.Address{LinkIndex: i + 1, Prefix: netip.PrefixFrom(address, 64)})
	}
	first, err := json.Marshal(identityOf(sampleOf(s, check.Report{}), nil))
	if err != nil || len(first) > 8<<10 {
		t.Errorf("the identity has %d bytes, want at most 8 KiB (%v)", len(first), err)
	}
	slices.Reverse(s.Links)
	slices.Reverse(s.Addresses)
	second, err := json.Marshal(identityOf(sampleOf(s, check.Report{}), nil))
	if err != nil || string(second) != string(first) {
		t.Errorf("another order led to another identity (%v)", err)
	}
}

// TestOwnAddressOfTheVLANInterface: a VLAN interface with a hardware address of its own is known by it, others are not.
func TestOwnAddressOfTheVLANInterface(t *testing.T) {
	s := check.Snapshot{Links: []check.Link{
		{Index: 1, Name: "bond0", Type: "bond", MAC: "02:00:00:00:00:01"},
		{Index: 2, Name: "bond0.56", Type: "vlan", MAC: "02:00:00:00:00:02", VLAN: &check.VLAN{ID: 56}},
		{Index: 3, Name: "bond0.57", Type: "vlan", MAC: "02:00:00:00:00:03", VLAN: &check.VLAN{ID: 57}},
	}}
	got := identityOf(sampleOf(s, check.Report{Uplink: "bond0", Interface: "bond0.56"}), nil)
	if want := []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}; !slices.Equal(got.MACs, want) {
		t.Errorf("hardware addresses %q, want %q", got.MACs, want)
	}
}
