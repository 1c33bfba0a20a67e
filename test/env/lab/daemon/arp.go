//go:build linux

package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// claimRecord keeps what all watched interfaces have seen.
type claimRecord struct {
	mu     sync.Mutex
	claims []wire.Claim
}

// recordLimit bounds the memory of a lab that runs for days: the oldest claims are dropped.
const recordLimit = 200_000

// Watch reads ARP packets from a socket on the gateway's interface of a VLAN until its read deadline passes, which is
// how to end it. Packets that the gateway itself sends do not reach such a socket.
func (r *claimRecord) Watch(conn *packet.Conn, gateway string, vlan int) error {
	buffer := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch ARP on VLAN %d: %w", vlan, err)
		}
		if claim, ok := parse(buffer[:n]); ok {
			claim.At = time.Now()
			claim.Gateway = gateway
			claim.VLAN = vlan
			r.add(claim)
		}
	}
}

func (r *claimRecord) add(c wire.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims = append(r.claims, c)
	if len(r.claims) > recordLimit {
		r.claims = slices.Delete(r.claims, 0, recordLimit/10)
	}
}

// Since returns the claims from a time on, oldest first.
func (r *claimRecord) Since(t time.Time) []wire.Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []wire.Claim
	for _, c := range r.claims {
		if !c.At.Before(t) {
			all = append(all, c)
		}
	}
	return all
}

// parse reads an Ethernet frame. It is a claim when it is a well-formed ARP packet for IPv4 whose sender has an
// address; a probe (RFC 5227) has none and claims nothing.
func parse(frame []byte) (wire.Claim, bool) {
	var f ethernet.Frame
	if f.UnmarshalBinary(frame) != nil || f.EtherType != ethernet.EtherTypeARP {
		return wire.Claim{}, false
	}
	var p arp.Packet
	if p.UnmarshalBinary(f.Payload) != nil || !p.SenderIP.Is4() || p.SenderIP.IsUnspecified() ||
		len(p.SenderHardwareAddr) == 0 {
		return wire.Claim{}, false
	}
	return wire.Claim{
		IP: p.SenderIP, MAC: p.SenderHardwareAddr.String(),
		Reply: p.Operation == arp.OperationReply, Gratuitous: p.SenderIP == p.TargetIP,
	}, true
}
