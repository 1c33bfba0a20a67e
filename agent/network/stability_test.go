//go:build linux

package network

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

// TestStability: what an agent knows is stable when it did not change for a while, or when its changes do not end.
func TestStability(t *testing.T) {
	now := time.Unix(0, 0)
	facts := election.Facts{}
	s := stability{facts: func() election.Facts { return facts }, now: func() time.Time { return now }}
	after := func(d time.Duration, change bool) bool {
		now = now.Add(d)
		facts.Candidate = facts.Candidate != change
		return s.stable()
	}
	if after(0, false) || after(stableTime-1, false) || after(1, true) || after(stableTime-1, false) {
		t.Error("it settled too early")
	}
	if !after(1, false) {
		t.Error("it has not settled")
	}
	for range 100 {
		if after(time.Second, true) != (now.Sub(time.Unix(0, 0)) >= stableMax) {
			t.Fatalf("settled after %s of changes: %t", now.Sub(time.Unix(0, 0)), s.stable())
		}
	}
}
