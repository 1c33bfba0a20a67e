package ipblock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

func holder(name string) ipblock.Holder {
	return ipblock.Holder{Namespace: "shop", Name: name, UID: "uid-" + name}
}

func silentFor(raw ...string) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		for _, r := range raw {
			if a == addr(r) {
				return true
			}
		}
		return false
	}
}

// ledger29 is the ledger of 203.0.113.8/29, whose hosts are .10 to .14, with the given holders.
func ledger29(held map[string]string, change ...func(*ipblock.Ledger)) ipblock.Ledger {
	l := ipblock.NewLedger("a", prefix("203.0.113.8/29"))
	l.Held = map[netip.Addr]ipblock.Holder{}
	l.Quarantined = map[netip.Addr]ipblock.Released{}
	for address, name := range held {
		l.Held[addr(address)] = holder(name)
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

func quarantined(address, name string, age time.Duration) func(*ipblock.Ledger) {
	return func(l *ipblock.Ledger) {
		l.Quarantined[addr(address)] = ipblock.Released{Holder: holder(name), Since: noon.Add(-age)}
	}
}

func closed(l *ipblock.Ledger) { l.Closed = true }

var full29 = map[string]string{
	"203.0.113.10": "h0", "203.0.113.11": "h1", "203.0.113.12": "h2", "203.0.113.13": "h3", "203.0.113.14": "h4",
}

// four29 leaves 203.0.113.12.
var four29 = map[string]string{"203.0.113.10": "h0", "203.0.113.11": "h1", "203.0.113.13": "h3", "203.0.113.14": "h4"}

func TestTake(t *testing.T) {
	for _, test := range []struct {
		name   string
		ledger ipblock.Ledger
		ask    ipblock.Ask
		want   string
		fails  error
		reused bool
	}{
		{name: "the first", ledger: ledger29(nil), want: "203.0.113.10"},
		{name: "the zero maps", ledger: ipblock.NewLedger("a", prefix("203.0.113.8/29")), want: "203.0.113.10"},
		{name: "the next", ledger: ledger29(map[string]string{"203.0.113.10": "api"}), want: "203.0.113.11"},
		{name: "what it has", ledger: ledger29(map[string]string{"203.0.113.12": "web"}), want: "203.0.113.12"},
		{name: "what it has, though it wants another", ledger: ledger29(map[string]string{"203.0.113.12": "web"}),
			ask: ipblock.Ask{Wanted: addr("203.0.113.13")}, want: "203.0.113.12"},
		{name: "what it has, though the block is closed",
			ledger: ledger29(map[string]string{"203.0.113.12": "web"}, closed), want: "203.0.113.12"},
		{name: "the wanted one", ledger: ledger29(nil), ask: ipblock.Ask{Wanted: addr("203.0.113.13")},
			want: "203.0.113.13"},
		{name: "the wanted one is another's", ledger: ledger29(map[string]string{"203.0.113.13": "api"}),
			ask: ipblock.Ask{Wanted: addr("203.0.113.13")}, fails: ipblock.ErrTaken},
		{name: "the wanted one is the network's", ledger: ledger29(nil), ask: ipblock.Ask{Wanted: addr("203.0.113.8")},
			fails: ipblock.ErrNoHost},
		{name: "the wanted one is the gateway", ledger: ledger29(nil), ask: ipblock.Ask{Wanted: addr("203.0.113.9")},
			fails: ipblock.ErrNoHost},
		{name: "the wanted one is the broadcast", ledger: ledger29(nil), ask: ipblock.Ask{Wanted: addr("203.0.113.15")},
			fails: ipblock.ErrNoHost},
		{name: "the wanted one is elsewhere", ledger: ledger29(nil), ask: ipblock.Ask{Wanted: addr("198.51.100.2")},
			fails: ipblock.ErrNoHost},
		{name: "the wanted one is a server's", ledger: ledger29(nil),
			ask: ipblock.Ask{Wanted: addr("203.0.113.13"), InUse: silentFor("203.0.113.13")}, fails: ipblock.ErrTaken},
		{name: "a server's is passed over", ledger: ledger29(nil), ask: ipblock.Ask{InUse: silentFor("203.0.113.10")},
			want: "203.0.113.11"},
		{name: "full", ledger: ledger29(full29), fails: ipblock.ErrFull},
		{name: "full but for a server's", ledger: ledger29(four29), ask: ipblock.Ask{InUse: silentFor("203.0.113.12")},
			fails: ipblock.ErrFull},
		{name: "closed", ledger: ledger29(nil, closed), fails: ipblock.ErrClosed},
		{name: "quarantined ones last", ledger: ledger29(nil, quarantined("203.0.113.10", "api", time.Hour)),
			want: "203.0.113.11"},
		{name: "only one that is quarantined", ledger: ledger29(four29, quarantined("203.0.113.12", "api", 10*time.Minute-1)),
			fails: ipblock.ErrQuarantined},
		{name: "only one that was quarantined", ledger: ledger29(four29, quarantined("203.0.113.12", "api", 10*time.Minute)),
			want: "203.0.113.12", reused: true},
		{name: "only one that is silent", ledger: ledger29(four29, quarantined("203.0.113.12", "api", time.Second)),
			ask: ipblock.Ask{Silent: silentFor("203.0.113.12")}, want: "203.0.113.12"},
		{name: "its own back at once", ledger: ledger29(four29, quarantined("203.0.113.12", "web", time.Second)),
			want: "203.0.113.12"},
		{name: "the wanted one is quarantined", ledger: ledger29(nil, quarantined("203.0.113.12", "api", time.Second)),
			ask: ipblock.Ask{Wanted: addr("203.0.113.12")}, fails: ipblock.ErrQuarantined},
		{name: "the wanted one was quarantined", ledger: ledger29(nil, quarantined("203.0.113.12", "api", time.Hour)),
			ask: ipblock.Ask{Wanted: addr("203.0.113.12")}, want: "203.0.113.12", reused: true},
		{name: "the one that was quarantined longest", ledger: ledger29(map[string]string{"203.0.113.10": "h0",
			"203.0.113.11": "h1", "203.0.113.12": "h2"},
			quarantined("203.0.113.13", "x", time.Hour), quarantined("203.0.113.14", "y", 2*time.Hour)),
			want: "203.0.113.14", reused: true},
		{name: "of a /30", ledger: ipblock.NewLedger("a", prefix("203.0.113.4/30")), want: "203.0.113.6"},
		{name: "of a /31", ledger: ipblock.NewLedger("a", prefix("203.0.113.4/31")), want: "203.0.113.5"},
		{name: "of IPv6, which is never given", ledger: ipblock.NewLedger("a", prefix("2001:db8::/64")),
			fails: ipblock.ErrFull},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := fmt.Sprint(test.ledger)
			test.ask.Now = noon
			after, grant, err := test.ledger.Take(holder("web"), test.ask)
			if !errors.Is(err, test.fails) {
				t.Fatalf("error is %v, want %v", err, test.fails)
			}
			if grant.Address != addr(test.want) || grant.Reused != test.reused {
				t.Errorf("granted %v, want %s, reused %t", grant, test.want, test.reused)
			}
			if got := fmt.Sprint(test.ledger); got != before {
				t.Errorf("the ledger was changed from %s to %s", before, got)
			}
			if err != nil {
				if diff := cmp.Diff(test.ledger, after,
					cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
					t.Errorf("a refusal changed the ledger:\n%s", diff)
				}
				return
			}
			if err := after.Check(); err != nil {
				t.Error(err)
			}
			if held, ok := after.AddressOf(holder("web")); !ok || held != grant.Address {
				t.Errorf("the ledger gives %s", held)
			}
		})
	}
}

func TestFreeIsForTheUIDThatHolds(t *testing.T) {
	l := ledger29(map[string]string{"203.0.113.10": "web"})
	successor := holder("web")
	successor.UID = "new"
	l, grant, err := l.Take(successor, ipblock.Ask{Now: noon})
	if err != nil || grant.Address != addr("203.0.113.10") {
		t.Fatalf("the successor got %v, %v", grant, err)
	}
	if l = l.Free(holder("web"), noon); l.Empty() {
		t.Error("the end of the old Service took the address from the new one")
	}
	if l = l.Free(successor, noon); !l.Empty() || len(l.Quarantined) != 1 {
		t.Errorf("the address is not quarantined: %v", l)
	}
	if again := l.Free(successor, noon.Add(time.Hour)); again.Quarantined[grant.Address].Since != noon {
		t.Error("freeing twice began a new quarantine")
	}
	if end := l.QuarantineEnds(); end != noon.Add(ipblock.Quarantine) {
		t.Errorf("the quarantine ends at %s", end)
	}
	if l = l.Expire(nil, noon.Add(ipblock.Quarantine)); len(l.Quarantined) != 0 {
		t.Errorf("the quarantine has not ended: %v", l)
	}
}

func TestCheckConvicts(t *testing.T) {
	for _, test := range []struct {
		name   string
		ledger ipblock.Ledger
		ok     bool
	}{
		{"empty", ledger29(nil), true},
		{"full", ledger29(full29), true},
		{"closed, with a holder", ledger29(full29, closed), true},
		{"no block", ipblock.Ledger{CIDR: prefix("203.0.113.8/29")}, false},
		{"no CIDR", ipblock.Ledger{BlockID: "a"}, false},
		{"CIDR with host bits", ipblock.Ledger{BlockID: "a", CIDR: prefix("203.0.113.10/29")}, false},
		{"gateway held", ledger29(map[string]string{"203.0.113.9": "web"}), false},
		{"address of another block held", ledger29(map[string]string{"203.0.113.16": "web"}), false},
		{"two addresses", ledger29(map[string]string{"203.0.113.10": "web", "203.0.113.11": "web"}), false},
		{"holder without a name",
			ledger29(nil, func(l *ipblock.Ledger) { l.Held[addr("203.0.113.10")] = ipblock.Holder{UID: "u"} }), false},
		{"held and quarantined", ledger29(map[string]string{"203.0.113.10": "web"}, quarantined("203.0.113.10", "api", 0)),
			false},
		{"broadcast is quarantined", ledger29(nil, quarantined("203.0.113.15", "api", 0)), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.ledger.Check(); (err == nil) != test.ok {
				t.Errorf("said %v", err)
			}
		})
	}
}

// TestLedgerKeepsItsRules: whatever is taken, freed, closed and settled, no address has two holders, no
// holder two addresses, and a count adds up.
func TestLedgerKeepsItsRules(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 300)) {
		rng := rand.New(rand.NewPCG(seed, 11))
		l := ipblock.NewLedger("a", netip.PrefixFrom(addr("203.0.113.0"), 28+rng.IntN(4)).Masked())
		hosts := countHosts(l.CIDR)
		now := noon
		for range 60 {
			h := holder(fmt.Sprint("s", rng.IntN(8)))
			switch rng.IntN(6) {
			case 0, 1:
				wanted := netip.Addr{}
				if rng.IntN(3) == 0 {
					wanted = netip.AddrFrom4([4]byte{203, 0, 113, byte(rng.IntN(20))})
				}
				l, _, _ = l.Take(h, ipblock.Ask{Wanted: wanted, Now: now,
					Silent: func(netip.Addr) bool { return rng.IntN(2) == 0 }})
			case 2:
				l = l.Free(h, now)
			case 3:
				l = l.Expire(nil, now)
			case 4:
				l = l.Reopen()
			case 5:
				if l.Empty() {
					l = l.Close()
				}
			}
			now = now.Add(time.Duration(rng.IntN(300)) * time.Second)
			if err := l.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			held, quarantined, free := l.Count()
			if held+quarantined+free != hosts || free < 0 {
				t.Fatalf("seed %d: %d held, %d quarantined, %d free of %d", seed, held, quarantined, free, hosts)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	for raw, hosts := range map[string]int{"/28": 13, "/29": 5, "/30": 1} {
		size, err := ipblock.ParseSize(raw)
		if got := countHosts(prefix("203.0.113.0" + raw)); err != nil || size.String() != raw || got != hosts {
			t.Errorf("%s is %s with %d hosts, %v", raw, size, got, err)
		}
	}
	for _, raw := range []string{"", "29", "/27", "/31", "/029", "/+29", " /29", "/29 ", "//29", "/2９"} {
		if size, err := ipblock.ParseSize(raw); err == nil {
			t.Errorf("%q is read as %s", raw, size)
		}
	}
}

// TestBoundQuarantine: no address is quarantined longer than one that is released now.
func TestBoundQuarantine(t *testing.T) {
	future := noon.Add(73 * 365 * 24 * time.Hour)
	l := ledger29(nil, func(l *ipblock.Ledger) {
		l.Quarantined = map[netip.Addr]ipblock.Released{
			addr("203.0.113.10"): {Holder: holder("gone"), Since: future},
			addr("203.0.113.11"): {Holder: holder("past"), Since: noon.Add(-time.Minute)},
		}
	})
	bounded, changed := ipblock.BoundQuarantine([]ipblock.Ledger{l, ledger29(nil)}, noon)
	if len(bounded) != 2 || len(changed) != 1 {
		t.Fatalf("%d ledgers, %d changed, want 2 and 1", len(bounded), len(changed))
	}
	for address, want := range map[string]time.Time{"203.0.113.10": noon, "203.0.113.11": noon.Add(-time.Minute)} {
		if got := bounded[0].Quarantined[addr(address)].Since; !got.Equal(want) {
			t.Errorf("%s is quarantined since %s, want %s", address, got, want)
		}
	}
	if !l.Quarantined[addr("203.0.113.10")].Since.Equal(future) {
		t.Error("the ledger was changed in place")
	}
	if again, changed := bounded[0].Bound(noon); changed || again.QuarantineEnds() != noon.Add(9*time.Minute) {
		t.Errorf("changed again: %t, the first quarantine ends at %s", changed, again.QuarantineEnds())
	}
}
