package arp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAskListsFewOfManyClaimants: a flood of invented claimants fills neither memory nor the Node's condition.
func TestAskListsFewOfManyClaimants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gateway, claimants = "192.0.2.1", 5000
		var hosts []host
		for i := range claimants {
			hosts = append(hosts, host{address: gateway, mac: fmt.Sprintf("02:00:00:01:%02x:%02x", i>>8, i&0xff),
				after: time.Millisecond})
		}
		w := newWire(hosts...)
		w.inbox = make(chan []byte, claimants)
		prober := NewProber()
		prober.Listen = func(string) (net.PacketConn, net.HardwareAddr, error) {
			return w, net.HardwareAddr{2, 0, 0, 0, 0, 1}, nil
		}
		answers, err := prober.Ask(t.Context(), "bond0.100", []Question{
			{Target: netip.MustParseAddr(gateway), Source: netip.MustParseAddr("192.0.2.2")},
		})
		if err != nil {
			t.Fatal(err)
		}
		macs := answers[0].MACs
		if !answers[0].Replied || len(macs) != maxClaimants || !slices.IsSorted(macs) {
			t.Errorf("%d claimants are listed, replied %t, sorted %t; want %d, sorted",
				len(macs), answers[0].Replied, slices.IsSorted(macs), maxClaimants)
		}
	})
}
