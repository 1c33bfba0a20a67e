package vlan

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// named is a link of the model.
func (h *harness) named(name string) *Link {
	h.t.Helper()
	i := slices.IndexFunc(h.kernel.links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		h.t.Fatalf("there is no link %s: %+v", name, h.kernel.links)
	}
	return &h.kernel.links[i]
}

// by adds a VLAN interface as a person does, with addresses.
func by(name string, id int, addresses ...string) func(*harness) {
	return func(h *harness) {
		l := h.kernel.add(Link{Link: check.Link{Name: name, Parent: 1, MTU: 1500, Up: true,
			VLAN: &check.VLAN{ID: id, Protocol: "802.1q"}}})
		for _, text := range addresses {
			h.kernel.addresses = append(h.kernel.addresses, check.Address{LinkIndex: l.Index,
				Prefix: netip.MustParsePrefix(text)})
		}
	}
}

// TestWarningsEndByTheirRemedy does what a Warning says: then the interface is as it has to be, and no Warning follows.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	deleted := func(h *harness, advised []string) { h.kernel.remove(h.named(advised[1]).Index) }
	readdressed := func(h *harness, advised []string) {
		l := h.named(advised[2])
		h.kernel.addresses = slices.DeleteFunc(h.kernel.addresses, func(a check.Address) bool {
			return a.LinkIndex == l.Index && a.Prefix.Addr().String() == advised[1]
		})
	}
	withoutBlock := func(h *harness) { h.expected.Network.Blocks = nil }
	for name, test := range map[string]struct {
		prepare func(*harness)
		// advice is the text, with the parameters of remedy.
		advice string
		remedy func(h *harness, advised []string)
	}{
		"the name is taken": {by("bond0.100", 101), `^(\S+) exists and is not a VLAN interface .*: delete or fix it$`, deleted},
		"a member takes the frames": {func(h *harness) {
			h.kernel.add(Link{Link: check.Link{Name: "eno1", MTU: 9000, Up: true, Master: 1}})
			by("eno1.100", 100)(h)
			h.named("eno1.100").Parent = h.named("eno1").Index
		}, `^(\S+) takes the frames of VLAN 100 from a member of the uplink: delete it$`, deleted},
		"the address is elsewhere": {by("bond0.101", 101, "192.0.2.2/28"), `^([0-9.]+) is on (\S+): remove it there$`,
			readdressed},
		"another prefix length": {by("bond0.100", 100, "192.0.2.2/24"),
			`^([0-9.]+) is on (\S+) with a prefix length other than (\d+): fix it$`, func(h *harness, advised []string) {
				readdressed(h, advised)
				h.kernel.addresses = append(h.kernel.addresses, check.Address{LinkIndex: h.named(advised[2]).Index,
					Prefix: netip.MustParsePrefix(advised[1] + "/" + advised[3])})
			}},
		"no block, assigned": {withoutBlock, `^(\S+) is in no block .*: assign its block to it`,
			func(h *harness, _ []string) { h.expected.Network.Blocks = network().Blocks }},
		"no block, another address": {func(h *harness) {
			h.expected.Network.IPs = []netip.Addr{netip.MustParseAddr("198.51.100.2")}
		}, `or give the server another address, in the phoenixNAP portal$`, func(h *harness, _ []string) {
			h.expected.Network.IPs = network().IPs
		}},
		"no uplink": {func(h *harness) {
			h.kernel.links = nil
			for _, name := range []string{"eno1", "eno2"} {
				h.kernel.add(Link{Link: check.Link{Name: name, Type: "device", MTU: 9000, Up: true, LowerUp: true,
					OperState: "up"}})
			}
		}, `: name it with --uplink$`, func(h *harness, _ []string) { h.expected.Uplink = "eno2" }},
	} {
		t.Run(name, func(t *testing.T) {
			runHarness(t, test.prepare, func(h *harness) {
				h.pass(time.Minute)
				advised := regexp.MustCompile(test.advice).FindStringSubmatch(h.last().Message)
				if advised == nil || !h.last().Warning || h.last().Reason != ReasonNotConfigured {
					t.Fatalf("events %+v, want one that advises %s", h.events, test.advice)
				}
				test.remedy(h, advised)
				h.wake()
				h.endsWarnings()
			})
		})
	}
}

// endsWarnings demands that the interface has the address, and that no Warning is recorded for an hour.
func (h *harness) endsWarnings() {
	h.t.Helper()
	h.pass(2 * budgetWindow)
	before := len(h.events)
	h.pass(time.Hour)
	name := h.Status().Interface
	if h.Status().Problem != "" || name == "" {
		h.t.Errorf("after the remedy the status is %+v", h.Status())
		return
	}
	has := slices.ContainsFunc(h.kernel.addresses, func(a check.Address) bool {
		return a.LinkIndex == h.named(name).Index && a.Prefix == netip.MustParsePrefix("192.0.2.2/28")
	})
	if !has || slices.ContainsFunc(h.events[before:], func(e Event) bool { return e.Warning }) {
		h.t.Errorf("after the remedy the addresses are %v, the events %+v", h.kernel.addresses, h.events[before:])
	}
}

// TestDisputeEndsByItsRemedy: VLANDisputed says to let only one program configure the interface. Once the other one
// leaves it, the agent restores it; without vlan in --manage the agent does nothing, and records nothing.
func TestDisputeEndsByItsRemedy(t *testing.T) {
	dispute := func(h *harness) {
		h.t.Helper()
		for range 60 {
			h.kernel.addresses = nil
			h.wake()
		}
		if e := h.last(); e.Reason != ReasonDisputed || !strings.Contains(e.Message, "added 192.0.2.2/28") ||
			!strings.HasSuffix(e.Message, "by excluding it there or by removing vlan from --manage") {
			h.t.Fatalf("the last event is %+v", e)
		}
	}
	t.Run("excluded there", func(t *testing.T) {
		runHarness(t, nil, func(h *harness) {
			dispute(h)
			h.endsWarnings()
		})
	})
	t.Run("not managed", func(t *testing.T) {
		var taken *model
		runHarness(t, nil, func(h *harness) {
			dispute(h)
			taken = h.kernel
		})
		// The agent ended with its flags; what it made stays, and the other program configures it.
		if i := slices.IndexFunc(taken.links, func(l Link) bool { return l.Name == "bond0.100" }); i < 0 {
			t.Errorf("the interface went with the agent: %+v", taken.links)
		}
	})
}
