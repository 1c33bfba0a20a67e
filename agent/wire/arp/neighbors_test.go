package arp

import (
	"net/netip"
	"testing"
)

// TestNeighbors: a gateway is asked directly only while exactly one machine replied for it the last time.
func TestNeighbors(t *testing.T) {
	const a, b = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	gateway := netip.MustParseAddr("203.0.113.1")
	var n Neighbors
	for i, step := range []struct {
		answer Answer
		want   string
	}{
		{Answer{MACs: []string{a}, Replied: true}, a},
		{Answer{MACs: []string{b}, Replied: true}, b},
		{Answer{}, ""},
		{Answer{MACs: []string{a}}, ""}, // announced, and no reply
		{Answer{MACs: []string{a}, Replied: true}, a},
		{Answer{MACs: []string{a, b}, Replied: true}, ""},
	} {
		n.Learn(gateway, step.answer)
		if got := n.Last(gateway).String(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if other := n.Last(gateway.Next()); other != nil {
			t.Errorf("step %d: another address is at %s", i, other)
		}
	}
}
