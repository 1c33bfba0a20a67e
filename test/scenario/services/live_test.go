//go:build linux && services

package services

import (
	"testing"
	"time"
)

// TestServices serves every kind of Service to clients beyond the gateway, in one cluster for each announcer; at the
// end the account is as it was.
func TestServices(t *testing.T) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			begun := time.Now()
			h := newHarness(t, m)
			all := kinds()
			prepared := map[int]bool{}
			passed := 0
			for i, k := range all {
				t.Run(k.name, func(t *testing.T) {
					run := h.with(t)
					for next := i; next < min(i+ahead, len(all)); next++ {
						if prepare := all[next].prepare; prepare != nil && !prepared[next] {
							prepare(run)
						}
						prepared[next] = true
					}
					k.check(run)
					if !t.Failed() {
						passed++
					}
				})
			}
			t.Run("nothing is left", func(t *testing.T) { h.with(t).nothingIsLeft() })
			h.figure("kinds_passed", passed, "kinds")
			h.figure("seconds", time.Since(begun), "s")
		})
	}
}
