package check

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

func rank(s Status) int {
	return slices.Index([]Status{OK, Unknown, Fail}, s)
}

// independent are the faults that neither hide the evidence of another nor fix it: what cannot be seen any more is no
// longer known to have failed; arp_ignore=2 fixes what IPVS breaks; and a person who names another interface, or a
// network without blocks, changes what is checked.
func independent() (names []string, all map[string]fault) {
	all = faults()
	apart := []string{"ARP restricted", "named interface is no VLAN", "sender borrowed", "secondaries are not kept",
		"several uplinks"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].status != Unknown && !slices.Contains(apart, name) {
			names = append(names, name)
		}
	}
	return names, all
}

// TestAnotherFaultNeverImprovesTheOutcome walks from a healthy node through random faults.
func TestAnotherFaultNeverImprovesTheOutcome(t *testing.T) {
	names, all := independent()
	for seed := range uint64(seeds.Count(t, 1000)) {
		random := rand.New(rand.NewPCG(seed, 1))
		e, s := nodeWith()
		before := Evaluate(e, s).Outcome()
		var injected []string
		for range 1 + random.IntN(6) {
			name := names[random.IntN(len(names))]
			injected = append(injected, name)
			all[name].inject(&e, &s)
			askRoutes(e, &s)
			after := Evaluate(e, s).Outcome()
			if rank(after.Status) < rank(before.Status) {
				t.Fatalf("seed %d: after %q the result went from %s %s to %s %s",
					seed, injected, before.Status, before.Reason, after.Status, after.Reason)
			}
			before = after
		}
	}
}

// TestOfTwoFaultsTheDeeperIsTheFirstCause takes every pair: the first cause is one of the two, and when both would be a
// failure, or both a warning, the one that the catalogue lists first.
func TestOfTwoFaultsTheDeeperIsTheFirstCause(t *testing.T) {
	names, all := independent()
	for _, a := range names {
		for _, b := range names {
			if interfering(a, b) {
				continue
			}
			report := Evaluate(nodeWith(all[a].inject, all[b].inject))
			got, _ := report.FirstCause()
			x := all[a]
			y := all[b]
			if got.Reason != x.reason && got.Reason != y.reason && !combined(a, b, got.Reason) {
				t.Errorf("%q and %q: first cause is %s %s (%s)", a, b, got.ID, got.Reason, got.Cause)
			}
			deeper := x
			if order(y.id) < order(x.id) {
				deeper = y
			}
			if x.status == y.status && got.ID != deeper.id && order(got.ID) > order(deeper.id) {
				t.Errorf("%q and %q: first cause is %s, want %s", a, b, got.ID, deeper.id)
			}
		}
	}
}

// combined returns which pairs make a third fault that is as deep as either.
func combined(a, b, reason string) bool {
	pairs := map[string][][2]string{
		"WrongParent": {
			{"VLAN and address twice", "VLAN interface missing"}, {"VLAN and address twice", "wrong VLAN ID"},
			{"VLAN interface twice", "VLAN interface missing"}, {"VLAN interface twice", "wrong VLAN ID"},
			{"VLAN taken by a member", "VLAN interface missing"}, {"VLAN taken by a member", "wrong VLAN ID"},
		},
		"AddressOnWrongInterface": {{"address missing", "VLAN and address twice"}},
		"WrongPrefixLength":       {{"VLAN and address twice", "uplink missing"}},
		"AddressMissing":          {{"address not registered", "address on wrong interface"}},
	}
	return slices.Contains(pairs[reason], [2]string{a, b}) || slices.Contains(pairs[reason], [2]string{b, a})
}

// interfering returns which pairs undo each other: a rule that is not there leads to no lost table, and a table is lost
// in one way at a time; a machine that has lost all its addresses cannot be distinguished from another.
func interfering(a, b string) bool {
	ruleGone := []string{"no rule by source", "no rule by mark", "no rule at all"}
	table := []string{"table lost", "table lost its way", "half of a table lost", "table leads elsewhere",
		"mark of a foreign rule"}
	if nothingLeft := []string{"another machine", "uplink missing"}; a != b && slices.Contains(nothingLeft, a) &&
		slices.Contains(nothingLeft, b) {
		return true
	}
	return slices.Contains(table, a) && (slices.Contains(ruleGone, b) || slices.Contains(table, b)) ||
		slices.Contains(table, b) && slices.Contains(ruleGone, a)
}

func order(id ID) int {
	return slices.IndexFunc(Catalogue(), func(c Check) bool { return c.ID == id })
}

// TestOrderDoesNotMatter shuffles everything that the kernel lists, with random faults.
func TestOrderDoesNotMatter(t *testing.T) {
	all := faults()
	names := slices.Sorted(maps.Keys(all))
	for seed := range uint64(seeds.Count(t, 1000)) {
		random := rand.New(rand.NewPCG(seed, 2))
		var injections []func(*Expected, *Snapshot)
		for _, name := range names {
			if random.IntN(20) == 0 {
				injections = append(injections, all[name].inject)
			}
		}
		e, s := nodeWith(injections...)
		want := Evaluate(e, s)
		wantLink, wantAsks, wantRoutes := Questions(e, s)
		shuffleAll(random, &e, &s)
		if diff := cmp.Diff(want, Evaluate(e, s)); diff != "" {
			t.Fatalf("seed %d: report depends on the order (-before +after):\n%s", seed, diff)
		}
		link, asks, routes := Questions(e, s)
		if diff := cmp.Diff([]any{wantLink, wantAsks, wantRoutes}, []any{link, asks, routes}, sameAddr); diff != "" {
			t.Fatalf("seed %d: questions depend on the order (-before +after):\n%s", seed, diff)
		}
	}
}

func shuffleAll(random *rand.Rand, e *Expected, s *Snapshot) {
	shuffle(random, s.Links)
	shuffle(random, s.Addresses)
	shuffle(random, s.ARP)
	shuffle(random, s.Routes)
	shuffle(random, s.Rules)
	shuffle(random, s.Programs)
	for _, table := range slices.Sorted(maps.Keys(s.Tables)) {
		shuffle(random, s.Tables[table])
	}
	shuffle(random, e.Network.Blocks)
	shuffle(random, e.NodeAddresses)
	shuffle(random, e.Virtual)
}

func shuffle[T any](random *rand.Rand, values []T) {
	random.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
}

// TestEveryReasonIsDeclaredAndCovered: each reason of the catalogue is the first cause of some fault, and no check
// gives another.
func TestEveryReasonIsDeclaredAndCovered(t *testing.T) {
	covered := map[ID]map[string]bool{}
	for name, f := range faults() {
		for _, found := range Evaluate(nodeWith(f.inject)).Findings {
			if found.Reason == "" {
				continue
			}
			c := Catalogue()[order(found.ID)]
			if !slices.Contains(c.Reasons, found.Reason) {
				t.Errorf("%q: %s has the reason %s, which its declaration does not list", name, found.ID, found.Reason)
			}
			if found.Status == Fail && c.Severity != Error {
				t.Errorf("%q: %s fails, but is declared a %s", name, found.ID, c.Severity)
			}
			if covered[found.ID] == nil {
				covered[found.ID] = map[string]bool{}
			}
			covered[found.ID][found.Reason] = true
		}
	}
	for _, c := range Catalogue() {
		for _, reason := range c.Reasons {
			if !covered[c.ID][reason] {
				t.Errorf("no fault gives %s the reason %s", c.ID, reason)
			}
		}
	}
}

func TestCatalogue(t *testing.T) {
	seen := map[ID]bool{}
	for _, c := range Catalogue() {
		if seen[c.ID] {
			t.Errorf("%s is there twice", c.ID)
		}
		for _, deeper := range c.DependsOn {
			if !seen[deeper] {
				t.Errorf("%s depends on %s, which does not come before it", c.ID, deeper)
			}
		}
		seen[c.ID] = true
		if c.Meaning == "" || len(c.Reasons) > 0 && (len(c.Causes) == 0 || c.Remedy == "") {
			t.Errorf("%s is not documented: a check that can fail has a meaning, causes and a remedy", c.ID)
		}
	}
}
