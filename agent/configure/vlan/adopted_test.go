package vlan

import (
	"net/netip"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// TestBesideWhatAPersonMade: an interface that a person made is completed, under any name unless one is fixed, and with
// other addresses beside those of the network.
func TestBesideWhatAPersonMade(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("192.0.2.2/28")}
	fallback := netip.MustParsePrefix("169.254.7.9/32")
	member := want{Addresses: own}
	bare := want{Fallback: fallback}
	for name, tc := range map[string]struct {
		want    want
		address string
		// deprecated, elsewhere: the address is one of a Service, or on a link that is not listed.
		deprecated, elsewhere bool
		added                 []netip.Prefix
		blocked               bool
	}{
		"another address":           {want: member, address: "203.0.113.2/29", added: own},
		"the address":               {want: member, address: "192.0.2.2/28"},
		"the address, other length": {want: member, address: "192.0.2.2/32", blocked: true},
		"on a link that is gone":    {want: member, address: "192.0.2.2/28", elsewhere: true, added: own},
		"any address, none wanted":  {want: bare, address: "203.0.113.2/32"},
		"a Service's, none wanted": {want: bare, address: "203.0.113.3/32", deprecated: true,
			added: []netip.Prefix{fallback}},
		"another name than the fixed one": {want: want{Name: "bond0.100", Fixed: true}, address: "10.0.0.2/8",
			blocked: true},
	} {
		const index = 2
		seen := Observed{Links: []Link{
			{Link: check.Link{Index: 1, Name: "bond0", Up: true, MTU: 1500}},
			{Link: check.Link{Index: index, Name: "lan", Parent: 1, Up: true,
				VLAN: &check.VLAN{ID: 100, Protocol: "802.1q"}}, Settings: ownership.Settings{}},
		}}
		on := index
		if tc.elsewhere {
			on = 77
		}
		seen.Addresses = []check.Address{{LinkIndex: on, Prefix: netip.MustParsePrefix(tc.address),
			Deprecated: tc.deprecated}}
		tc.want.ID = 100
		tc.want.Uplink = 1
		actions, problems := plan(tc.want, seen)
		if (len(problems) > 0) != tc.blocked {
			t.Errorf("%s: problems %q", name, problems)
		}
		target := tc.want.target(seen)
		if (target == nil) != tc.want.Fixed {
			t.Errorf("%s: the interface is %+v; planned %v", name, target, actions)
		}
		if target == nil {
			continue
		}
		added, _ := tc.want.missing(*target, seen)
		if len(added) != len(tc.added) || len(added) > 0 && added[0] != tc.added[0] {
			t.Errorf("%s: adds %v, want %v", name, added, tc.added)
		}
	}
}

// TestBudget: so many changes in a minute, and no more until the first of them is a minute ago.
func TestBudget(t *testing.T) {
	var b budget
	now := time.Now()
	for i := range budgetSize {
		if wait := b.spend(true, now.Add(time.Duration(i)*time.Second)); wait != 0 {
			t.Fatalf("change %d waits for %s", i+1, wait)
		}
	}
	if wait := b.spend(false, now.Add(budgetSize*time.Second)); wait != 0 {
		t.Errorf("nothing to do waits for %s", wait)
	}
	if wait := b.spend(true, now.Add(budgetSize*time.Second)); wait != budgetWindow-budgetSize*time.Second {
		t.Errorf("one change more waits for %s", wait)
	}
	if wait := b.spend(true, now.Add(budgetWindow)); wait != 0 {
		t.Errorf("a minute after the first one waits for %s", wait)
	}
}
