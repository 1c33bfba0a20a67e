//go:build linux

package returnpath

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestWarningsEndByTheirRemedy does what a Warning says: then the return path is managed, and no Warning follows.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	foreignRule := func(h *harness) { h.kernel.rules = []kernelRule{{rule: rule{mark: 0x10, mask: 0xff}}} }
	foreignMark := func(h *harness) { h.kernel.marker = "a rule of the chain x" }
	otherBits := func(t *testing.T, h *harness) {
		bits, err := ParseBits("0xf00000")
		if err != nil {
			t.Fatal(err)
		}
		h.config.Bits = bits // the agent starts again with other flags
		h.kernel.marker = ""
	}
	for name, test := range map[string]struct {
		drive  func(h *harness)
		reason string
		advice string
		remedy func(t *testing.T, h *harness)
	}{
		"a rule, other bits": {foreignRule, ReasonMarkClash, "choose other bits with --mark", otherBits},
		"a rule, stopped": {foreignRule, ReasonMarkClash, "or stop that use",
			func(_ *testing.T, h *harness) { h.kernel.rules = nil }},
		"a mark, other bits": {foreignMark, ReasonMarkClash, `used by a rule of the chain x; choose other bits with --mark`,
			otherBits},
		"a mark, stopped": {foreignMark, ReasonMarkClash, "or stop that use",
			func(_ *testing.T, h *harness) { h.kernel.marker = "" }},
		"without the capability": {func(h *harness) {
			h.kernel.fail = fmt.Errorf("open nftables: %w", syscall.EPERM)
		}, ReasonFailed, `operation not permitted; .*check that the agent has the capability NET_ADMIN`,
			func(_ *testing.T, h *harness) { h.kernel.fail = nil }},
		"without nftables": {func(h *harness) {
			h.kernel.fail = fmt.Errorf("read nftables table ip phoenixnap: %w", syscall.EOPNOTSUPP)
		}, ReasonFailed, "that the kernel has nftables and policy routing",
			func(_ *testing.T, h *harness) { h.kernel.fail = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness()
			var said []string
			h.config.Record = func(n Notice) {
				said = append(said, fmt.Sprintf("%t %s %s", n.Warning, n.Reason, n.Message))
			}
			test.drive(h)
			for range 3 {
				_ = h.Reconcile(t.Context()) // its error is in the event
			}
			if len(said) != 1 || !regexp.MustCompile("^true "+test.reason+" .*"+test.advice).MatchString(said[0]) {
				t.Fatalf("events %q, want one that advises %s", said, test.advice)
			}
			said = nil
			test.remedy(t, h)
			for range 100 {
				h.reconcile(t)
			}
			if !h.Status().Managing || len(said) != 1 || !strings.HasPrefix(said[0], "false "+ReasonManaged+" ") {
				t.Errorf("after the remedy the status is %+v; events %q", h.Status(), said)
			}
		})
	}
}
