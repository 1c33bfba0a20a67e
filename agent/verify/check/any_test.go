package check

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// pick returns one of the values.
func pick[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// anySnapshot is a machine that no one would set up: links of any kind below and above each other, addresses of the
// network anywhere, rules and tables at random.
func anySnapshot(random *rand.Rand) Snapshot {
	s := Snapshot{Hostname: "srv-a", IPForward: pick(random, true, false), IPVSReroute: pick(random, true, false),
		Settings: map[string]Settings{}, Tables: map[int][]Route{}}
	for i := range random.IntN(9) {
		s.Links = append(s.Links, anyLink(random, i+1))
	}
	for _, name := range append([]string{"all"}, linkNames(s.Links)...) {
		if random.IntN(8) > 0 {
			s.Settings[name] = Settings{"rp_filter": random.IntN(3), "arp_ignore": pick(random, 0, 1, 2, 8),
				"arp_announce": random.IntN(3), "arp_filter": random.IntN(2), "proxy_arp": random.IntN(2),
				"forwarding": min(random.IntN(8), 1), "accept_local": random.IntN(2)}
		}
	}
	for range random.IntN(8) {
		s.Addresses = append(s.Addresses, Address{LinkIndex: random.IntN(10), Deprecated: random.IntN(6) == 0,
			Prefix: netip.MustParsePrefix(pick(random,
				"192.0.2.2/28", "192.0.2.2/32", "192.0.2.1/28", "203.0.113.3/32", "203.0.113.1/29", "10.0.0.11/24",
				"10.244.1.1/24", "127.0.0.1/8", "fe80::1/64", "169.254.3.4/32"))})
	}
	for i := range random.IntN(5) {
		s.Rules = append(s.Rules, anyRule(random, i))
	}
	for _, table := range []int{TableMain, 1100, 7} {
		for range random.IntN(3) {
			s.Tables[table] = append(s.Tables[table],
				Route{Type: pick(random, "unicast", "blackhole", "throw"), LinkIndex: random.IntN(10),
					Destination: netip.MustParsePrefix(pick(random, "0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1",
						"10.244.1.9/32", "192.0.2.0/28"))})
		}
	}
	for range random.IntN(3) {
		s.Programs = append(s.Programs, Program{LinkIndex: random.IntN(10),
			Hook: pick(random, "tc ingress", "tc egress"),
			Name: pick(random, "", "cil_from_netdev", "cali_tc_preamble", "\x1b[2J")})
	}
	for _, target := range []netip.Addr{nodeIP, gateway, second} {
		s.ARP = append(s.ARP, pick(random, ARPAnswer{Target: target, Source: nodeIP},
			ARPAnswer{Target: target, Source: nodeIP, MACs: []string{gatewayMAC}, Replied: true},
			ARPAnswer{Target: target, Source: nodeIP, MACs: []string{"02:00:00:00:00:66", gatewayMAC}, Replied: true},
			ARPAnswer{Target: target, Error: "operation not permitted"}))
	}
	return s
}

func linkNames(links []Link) []string {
	list := make([]string, len(links))
	for i, l := range links {
		list[i] = l.Name
	}
	return list
}

func anyLink(random *rand.Rand, index int) Link {
	l := Link{Index: index, Type: pick(random, "device", "bond", "vlan", "vlan", "bridge", "veth", "vrf"),
		MTU: pick(random, 1000, 1500, 9000),
		Up:  random.IntN(5) > 0, LowerUp: random.IntN(5) > 0, OperState: pick(random, "up", "up", "down", "unknown"),
		MAC: pick(random, "", "02:00:00:00:00:01", "02:00:00:00:00:02"), NoARP: random.IntN(9) == 0,
		XDP:    random.IntN(9) == 0,
		Parent: random.IntN(10), Master: pick(random, 0, 0, random.IntN(10))}
	l.Name = fmt.Sprintf("%s%d", l.Type, index)
	switch l.Type {
	case "vlan":
		l.VLAN = &VLAN{ID: pick(random, testVLAN, testVLAN, 11), Protocol: pick(random, "802.1q", "802.1q", "802.1ad")}
	case "bond":
		l.Bond = &Bond{Mode: pick(random, modeLACP, modeActiveBackup, "balance-rr"),
			PartnerMAC: pick(random, "", gatewayMAC), Aggregator: random.IntN(3)}
	default:
	}
	if l.Master != 0 && random.IntN(2) == 0 {
		l.Slave = &Slave{Up: random.IntN(3) > 0, Aggregator: random.IntN(3), NoPartner: random.IntN(3) == 0}
	}
	return l
}

func anyRule(random *rand.Rand, i int) Rule {
	return Rule{Priority: i, Table: pick(random, 0, 7, 1100, TableMain), Mark: pick[uint32](random, 0, 0x2000),
		Mask:   pick[uint32](random, 0, 0x2000),
		Invert: random.IntN(5) == 0, Protocol: pick(random, 0, ManagedProtocol),
		Source: pick(random, netip.Prefix{}, netip.MustParsePrefix("192.0.2.0/28"))}
}

// TestAnySnapshot: whatever a machine looks like, the report is complete, has reasons, and does not depend on the order
// of anything; and no question is asked in the name of a Service or a gateway.
func TestAnySnapshot(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 1000)) {
		random := rand.New(rand.NewPCG(seed, 4))
		e := expectedNode()
		s := anySnapshot(random)
		if random.IntN(3) == 0 {
			e.Mask = 0x2000
		}
		if random.IntN(6) == 0 {
			e.Interface = pick(random, append(linkNames(s.Links), "none")...)
		}
		askRoutes(e, &s)
		report := Evaluate(e, s)
		for _, problem := range problems(report) {
			t.Errorf("seed %d: %s", seed, problem)
		}
		_, asks, _ := Questions(e, s)
		for _, q := range asks {
			if e.isGateway(q.Source) || slices.Contains(e.Virtual, q.Source) {
				t.Errorf("seed %d: asks for %s as %s", seed, q.Target, q.Source)
			}
		}
		shuffleAll(random, &e, &s)
		if diff := cmp.Diff(report, Evaluate(e, s)); diff != "" {
			t.Errorf("seed %d: report depends on the order (-before +after):\n%s", seed, diff)
		}
		if t.Failed() {
			return
		}
	}
}

// problems are what no report may have.
func problems(r Report) []string {
	var found []string
	complain := func(f Finding, what string) {
		found = append(found, fmt.Sprintf("%s %s %s %s", f.ID, f.Status, f.Reason, what))
	}
	if len(r.Findings) != len(Catalogue()) {
		found = append(found, "findings are missing")
	}
	for _, f := range r.Findings {
		declared := Catalogue()[order(f.ID)]
		bad := f.Status == Fail || f.Status == Warn || f.Status == Unknown
		switch {
		case bad && (f.Reason == "" || f.Cause == "" || !slices.Contains(declared.Reasons, f.Reason)):
			complain(f, "has no reason that is declared, or no cause")
		case (f.Status == Fail || f.Status == Warn) && len(f.Fixes) == 0:
			complain(f, "has no fix")
		case f.Status == Fail && declared.Severity != Error:
			complain(f, "fails, but is declared a warning")
		case f.Status == Skip && f.Because == "":
			complain(f, "is skipped without a reason")
		case !bad && f.Reason != "":
			complain(f, "has a reason although it passes")
		case len(f.Cause) > 400 || strings.ContainsAny(f.Cause, "\n\t"):
			complain(f, "has a cause that fits into no message")
		default:
		}
	}
	first, bad := r.FirstCause()
	if v := r.Outcome(); (v.Status == Fail) != (bad && first.Status == Fail) || v.Status == Fail &&
		v.Reason != first.Reason {
		found = append(found, fmt.Sprintf("the result is %s %s, the first cause %s %s", v.Status, v.Reason,
			first.Status, first.Reason))
	}
	return found
}
