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
			r := newRig(t, m)
			all := kinds()
			prepared := map[int]bool{}
			passed := 0
			for i, k := range all {
				t.Run(k.name, func(t *testing.T) {
					r := r.with(t)
					for next := i; next < min(i+ahead, len(all)); next++ {
						if prepare := all[next].prepare; prepare != nil && !prepared[next] {
							prepare(r)
						}
						prepared[next] = true
					}
					k.check(r)
					if !t.Failed() {
						passed++
					}
				})
			}
			t.Run("nothing is left", func(t *testing.T) { r.with(t).nothingIsLeft() })
			r.figure("kinds_passed", passed, "kinds")
			r.figure("seconds", time.Since(begun), "s")
		})
	}
}
