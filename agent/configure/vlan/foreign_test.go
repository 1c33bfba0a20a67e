package vlan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// anyMachine is what netlink may list: links of any type, on top of any other, in any group, with any alias.
func anyMachine(r *rand.Rand) *model {
	m := newModel()
	for range 2 + r.IntN(8) {
		l := check.Link{Type: pick(r, "device", "bond", "bridge", "dummy", "veth", "macvlan", "vlan", "vlan", "vlan"),
			MTU: 1500, Up: r.IntN(2) == 0, Master: pick(r, 0, 0, 0, r.IntN(m.next)),
			Alias: pick(r, "", "", "", "to rack 7", "phoenixnap-agent made", "phoenixnap-agent adopted down",
				"phoenixnap-agent made ip=192.0.2.2/28", "phoenixnap-agent made x=1")}
		l.Name = fmt.Sprintf("%s%d", l.Type, m.next)
		if l.Type == "vlan" || l.Type == "macvlan" {
			l.Parent = r.IntN(m.next)
		}
		if l.Type == "vlan" {
			l.VLAN = &check.VLAN{ID: pick(r, 100, 101), Protocol: pick(r, "802.1q", "802.1q", "802.1q", "802.1ad")}
			if m.taken(l) {
				continue
			}
		}
		made := m.add(Link{Link: l})
		m.group[made.Index] = pick(r, 0, 7, ownership.BirthGroup, ownership.BirthGroup)
		if r.IntN(3) == 0 {
			m.addresses = append(m.addresses, check.Address{LinkIndex: made.Index, Prefix: pick(r, somePrefixes...)})
		}
	}
	return m
}

func (m *model) taken(l check.Link) bool {
	return slices.ContainsFunc(m.links, func(o Link) bool {
		return o.VLAN != nil && *o.VLAN == *l.VLAN && o.Parent == l.Parent
	})
}

// mayBeTheAgents reports whether the agent can have made a link that no one has used since: an 802.1Q interface on a
// link that is none, which nothing is on top of, with the agent's words or as it is before they are written.
func (m *model) mayBeTheAgents(l Link) bool {
	addressed := slices.ContainsFunc(m.addresses, func(a check.Address) bool { return a.LinkIndex == l.Index })
	born := m.group[l.Index] == ownership.BirthGroup && l.Alias == "" && !l.Up && !addressed
	tagged := l.VLAN != nil && l.VLAN.Protocol == "802.1q" &&
		slices.ContainsFunc(m.links, func(o Link) bool { return o.Index == l.Parent && o.VLAN == nil })
	return tagged && l.Master == 0 && (strings.HasPrefix(l.Alias, "phoenixnap-agent made") || born) &&
		!slices.ContainsFunc(m.links, func(o Link) bool { return o.Parent == l.Index })
}

// TestOnlyOwnLinksAreDeleted: on any machine, neither the agent, whatever network it is in, nor a clean-up deletes a
// link that the agent cannot have made.
func TestOnlyOwnLinksAreDeleted(t *testing.T) {
	deleted := 0
	for seed := range uint64(seeds.Count(t, 5000)) {
		r := rand.New(rand.NewPCG(seed, 9))
		m := anyMachine(r)
		before := m.clone()
		w := pick(r, want{}, someWant(r))
		seen, _ := m.Look(t.Context())
		actions, _ := plan(w, seen)
		pass := &run{kernel: m}
		for _, a := range actions {
			if a.do(t.Context(), pass) != nil {
				break
			}
		}
		_, _ = Cleanup(t.Context(), m) // reports what it leaves
		for _, l := range before.links {
			if slices.ContainsFunc(m.links, func(o Link) bool { return o.Index == l.Index }) {
				continue
			}
			deleted++
			if !before.mayBeTheAgents(l) {
				t.Fatalf("seed %d: with %+v, %s (%s, alias %q, group %d, master %d, parent %d) was deleted", seed, w,
					l.Name, l.Type, l.Alias, before.group[l.Index], l.Master, l.Parent)
			}
		}
	}
	if deleted < 500 {
		t.Errorf("%d links were deleted: the starts do not cover the agent's own", deleted)
	}
}

// TestLinkInUseStays: an interface that the agent made, and that carries something of a person since, is reported.
func TestLinkInUseStays(t *testing.T) {
	for name, use := range map[string]func(m *model, l *Link){
		"a port of a bridge": func(m *model, l *Link) {
			at := l.Index
			bridge := m.add(Link{Link: check.Link{Name: "vmbr1", Type: "bridge", MTU: 1500}}).Index
			m.links[at-1].Master = bridge
		},
		"below another interface": func(m *model, l *Link) {
			m.add(Link{Link: check.Link{Name: "macvtap0", Type: "macvtap", Parent: l.Index}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			m.add(Link{Link: check.Link{Name: "bond0", Type: "bond", MTU: 9000, Up: true}})
			use(m, m.add(Link{Link: check.Link{Name: "bond0.100", Type: "vlan", Parent: 1,
				Alias: "phoenixnap-agent made", VLAN: &check.VLAN{ID: 100, Protocol: "802.1q"}}}))
			_, err := Cleanup(t.Context(), m)
			if err == nil || len(m.links) != 3 ||
				!strings.Contains(err.Error(), "bond0.100, which the agent made, stays") {
				t.Errorf("clean up: %v, %d links are left, want all and an error that says why", err, len(m.links))
			}
			_, problems := plan(want{}, must(m.Look(t.Context())))
			if len(problems) != 1 {
				t.Errorf("problems of the plan: %q, want one", problems)
			}
		})
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
