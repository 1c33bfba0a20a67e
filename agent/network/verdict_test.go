//go:build linux

package network

import (
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// TestVerdictWithAnnouncer: what is wrong with the announcer is part of the condition, after what is wrong with an
// address, unless no address can be announced.
func TestVerdictWithAnnouncer(t *testing.T) {
	healthy := check.Outcome{Status: check.OK, Reason: "Answered", Message: "every address is answered"}
	silent := check.Outcome{Status: check.Fail, Reason: "NoAnswer", Message: "PN601: no machine answers"}
	without := speaker.State{Running: true, Problem: "no key"}
	shared := speaker.State{Running: true, KeyShared: true}
	idle := speaker.State{KeyShared: true, Problem: "no key"}
	for name, tc := range map[string]struct {
		state           speaker.State
		verdict         check.Outcome
		status          check.Status
		reason, message string
	}{
		"nothing":                {speaker.State{Running: true}, healthy, check.OK, "Answered", "every address"},
		"no key":                 {without, silent, check.Fail, "NoHeartbeatKey", "no key"},
		"shared key":             {shared, healthy, check.OK, "HeartbeatKeyShared", "replace the key"},
		"shared key, and silent": {shared, silent, check.Fail, "NoAnswer", "PN601"},
		"it does not announce":   {idle, healthy, check.OK, "Answered", "every"},
	} {
		got := withAnnouncer(tc.state, tc.verdict)
		if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
			t.Errorf("%s: %+v, want %s %s with %q", name, got, tc.status, tc.reason, tc.message)
		}
	}
}
