//go:build linux

package lab

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

func TestServersReachEachOtherAndTheCaller(t *testing.T) {
	t.Logf("in a virtual machine: %v, uplink: %s, built in %v", shared.InMachine, shared.Uplink, shared.Built)
	if shared.InMachine && shared.Uplink != "bonding" {
		t.Errorf("uplink %q: the kernel of the virtual machine has bonding", shared.Uplink)
	}
	if !pings(t, "srv-a", netip.MustParseAddr("10.0.0.12"), 2) {
		t.Error("srv-a does not reach srv-b on the private network")
	}
	if !pings(t, PodOf("srv-a"), netip.MustParseAddr("10.244.2.10"), 2) {
		t.Error("the pod of srv-a does not reach the pod of srv-b")
	}
	target := net.JoinHostPort("10.0.0.1", strconv.Itoa(int(portNumber(service.URL))))
	for _, host := range []string{"srv-a", PodOf("srv-a"), Client} {
		got := execute(t, host, "busybox", "wget", "-q", "-O", "-", "http://"+target)
		if got != "the caller's service" {
			t.Errorf("from %s through the management address: %q", host, got)
		}
	}
	if got := execute(t, "srv-b", "hostname"); got != "srv-b\n" {
		t.Errorf("host name %q", got)
	}
	if got := execute(t, "srv-a", "ls", "/sys/class/net"); !strings.Contains(got, "bond0.4") {
		t.Errorf("/sys does not show the interfaces of the server: %q", got)
	}
	if got := execute(t, "srv-b", "cat", Path("note.txt")); !strings.Contains(got, "TestServersReach") {
		t.Errorf("the file that was handed over holds %d bytes of something else", len(got))
	}
}

// TestTheCallerConnectsFromAHost reaches, as a server does, what the management host forwards to the caller.
func TestTheCallerConnectsFromAHost(t *testing.T) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return shared.Dial(ctx, "srv-a", address)
		}}}
	get := func(port uint16) (string, error) {
		address := netip.AddrPortFrom(wire.ManagementAddress.Addr(), port)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String(), nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	if got, err := get(portNumber(service.URL)); err != nil || got != "the caller's service" {
		t.Errorf("answer %q, %v", got, err)
	}
	if _, err := get(1); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a port without a listener: %v", err)
	}
}

func TestVLANIsOpenOnlyForMembers(t *testing.T) {
	n := publicNetwork{vlan: 100, base: 0}
	n.publish(true)
	n.configure(t, "srv-a", 2)
	if pings(t, "srv-a", n.ip(1), 2) {
		t.Fatal("the gateway answers a server that is no member")
	}
	n.publish(true, "id-a")
	eventually(t, "the gateway answers a member", func() bool { return pings(t, "srv-a", n.ip(1), 1) })
	n.publish(true, "id-b")
	eventually(t, "the gateway is silent again", func() bool { return !pings(t, "srv-a", n.ip(1), 1) })
}

func TestGatewayServesABlockOnlyWhileItIsAssigned(t *testing.T) {
	n := publicNetwork{vlan: 101, base: 8}
	n.publish(false, "id-a")
	n.configure(t, "srv-a", 2)
	if pings(t, "srv-a", n.ip(1), 2) {
		t.Fatal("there is a gateway for a block that is not assigned")
	}
	n.publish(true, "id-a")
	eventually(t, "the client reaches the server", func() bool { return pings(t, Client, n.ip(2), 1) })
	n.publish(false, "id-a")
	eventually(t, "the client does not reach the server any more", func() bool { return !pings(t, Client, n.ip(2), 1) })
	entries, err := shared.Neighbours(t.Context(), Gateway)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IP == n.ip(2) {
			t.Errorf("the gateway still knows %+v", e)
		}
	}
}

func TestGatewayDropsForeignSources(t *testing.T) {
	n := publicNetwork{vlan: 102, base: 16}
	n.publish(true, "id-a")
	n.configure(t, "srv-a", 2)
	eventually(t, "the client answers", func() bool {
		return pings(t, "srv-a", netip.MustParseAddr("198.51.100.10"),
			1)
	})
	execute(t, "srv-a", "ip", "address", "add", "192.0.2.55/32", "dev", "lo")
	before := echoesAtClient(t)
	if _, err := shared.Exec(t.Context(), "srv-a", "busybox", "ping", "-c", "2", "-W", "1", "-I", "192.0.2.55",
		"198.51.100.10"); err != nil {
		t.Fatal(err)
	}
	if got := echoesAtClient(t) - before; got != 0 {
		t.Errorf("%d packets with a foreign source reached the client", got)
	}
	before = echoesAtClient(t)
	if _, err := shared.Exec(t.Context(), "srv-a", "busybox", "ping", "-c", "2", "-W", "1", "-I", n.ip(2).String(),
		"198.51.100.10"); err != nil {
		t.Fatal(err)
	}
	if got := echoesAtClient(t) - before; got != 2 {
		t.Errorf("%d of 2 packets with the server's own source reached the client", got)
	}
}

// echoesAtClient counts the echo requests that the client has received (RFC 2011, icmpInEchos).
func echoesAtClient(t *testing.T) int {
	t.Helper()
	names, values, _ := strings.Cut(execute(t, Client, "grep", "^Icmp:", "/proc/net/snmp"), "\n")
	i := slices.Index(strings.Fields(names), "InEchos")
	count, err := strconv.Atoi(strings.Fields(values)[i])
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestOnlyAnAnnouncementMovesAnAddress(t *testing.T) {
	// The address lies in a block of its own, as a Service's does: a server with an address of the same block would
	// forward what it still gets to the new holder.
	n := publicNetwork{vlan: 103, base: 24, more: []int{56}}
	service := publicNetwork{base: 56}
	n.publish(true, "id-a", "id-b")
	n.configure(t, "srv-a", 2)
	n.configure(t, "srv-b", 3)
	vip := service.ip(2)
	execute(t, "srv-a", "ip", "address", "add", vip.String()+"/32", "dev", n.link())
	eventually(t, "the client reaches the address on srv-a", func() bool { return pings(t, Client, vip, 1) })
	execute(t, "srv-a", "ip", "address", "del", vip.String()+"/32", "dev", n.link())
	execute(t, "srv-b", "ip", "address", "add", vip.String()+"/32", "dev", n.link())
	if pings(t, Client, vip, 8) { // longer than the kernel would wait before it asks again by itself
		t.Fatal("the gateway found the new holder without an announcement")
	}
	moved := time.Now()
	announce(t, "srv-b", n.link(), vip)
	if !pings(t, Client, vip, 2) {
		t.Error("the address is dead after it was announced by its new holder")
	}
	claims, err := shared.ARPClaims(t.Context(), moved.Add(-100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(claims, func(c Claim) bool {
		return c.IP == vip && c.VLAN == n.vlan && c.Gratuitous && time.Since(c.At) < time.Minute
	}) {
		t.Errorf("the announcement of %s is not among the claims: %+v", vip, claims)
	}
}

// announce sends gratuitous ARP as a new holder does.
func announce(t *testing.T, server, link string, ip netip.Addr) {
	t.Helper()
	execute(t, server, "busybox", "arping", "-U", "-c", "2", "-I", link, ip.String())
}

func TestTwoClaimantsAreSeen(t *testing.T) {
	n := publicNetwork{vlan: 104, base: 32}
	n.publish(true, "id-a", "id-b")
	n.configure(t, "srv-a", 2)
	n.configure(t, "srv-b", 3)
	start := time.Now()
	for _, server := range []string{"srv-a", "srv-b"} {
		execute(t, server, "ip", "address", "add", n.ip(4).String()+"/32", "dev", n.link())
	}
	eventually(t, "both answer the gateway", func() bool {
		pings(t, Client, n.ip(4), 1)
		claims, err := shared.ARPClaims(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		machines := map[string]bool{}
		for _, c := range claims {
			if c.IP == n.ip(4) {
				machines[c.MAC] = true
			}
		}
		return len(machines) == 2
	})
}

// TestLocationsAreApart: equal VLAN IDs in two locations are two networks; what lies between is the private network and
// the Internet.
func TestLocationsAreApart(t *testing.T) {
	home := publicNetwork{vlan: 110, base: 96}
	away := publicNetwork{vlan: 110, base: 104, location: "PHX"}
	for _, n := range []struct {
		publicNetwork
		server, id string
	}{{home, "srv-a", "id-a"}, {away, "srv-d", "id-d"}} {
		n.publish(true, n.id)
		n.configure(t, n.server, 2)
		eventually(t, "the client reaches "+n.server, func() bool { return pings(t, Client, n.ip(2), 1) })
	}
	if !pings(t, "srv-a", netip.MustParseAddr("10.0.0.14"), 2) || !pings(t, "srv-a", away.ip(2), 2) {
		t.Error("srv-a does not reach srv-d over the private network and the Internet")
	}
	vip := away.ip(3)
	execute(t, "srv-a", "ip", "address", "add", vip.String()+"/32", "dev", home.link())
	execute(t, "srv-a", "busybox", "arping", "-U", "-c", "1", "-I", home.link(), "-s", vip.String(), vip.String())
	if pings(t, Client, vip, 2) {
		t.Error("a server answers for an address of another location")
	}
	away.publish(false, "id-d")
	eventually(t, "the block is on no network", func() bool { return !pings(t, Client, away.ip(2), 1) })
	claims, err := shared.ARPClaims(t.Context(), time.Now().Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, c := range claims {
		if c.VLAN == home.vlan {
			seen[c.IP.String()] += c.Gateway + " "
		}
	}
	if !strings.HasPrefix(seen[vip.String()], "gateway ") || strings.Contains(seen[vip.String()], "gateway-2") ||
		!strings.HasPrefix(seen[away.ip(2).String()], "gateway-2 ") {
		t.Errorf("addresses that the gateways saw: %v", seen)
	}
}
