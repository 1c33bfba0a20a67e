//go:build linux

package main

import (
	"net/netip"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
)

// TestNeighbors: a gateway is asked directly only while exactly one machine replied for it the last time.
func TestNeighbors(t *testing.T) {
	const a, b = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	gateway := netip.MustParseAddr("203.0.113.1")
	var n neighbors
	for i, step := range []struct {
		answer arp.Answer
		want   string
	}{
		{arp.Answer{MACs: []string{a}, Replied: true}, a},
		{arp.Answer{MACs: []string{b}, Replied: true}, b},
		{arp.Answer{}, ""},
		{arp.Answer{MACs: []string{a}}, ""}, // announced, and no reply
		{arp.Answer{MACs: []string{a}, Replied: true}, a},
		{arp.Answer{MACs: []string{a, b}, Replied: true}, ""},
	} {
		n.learn(gateway, step.answer)
		if got := n.last(gateway).String(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if other := n.last(gateway.Next()); other != nil {
			t.Errorf("step %d: another address is at %s", i, other)
		}
	}
}
