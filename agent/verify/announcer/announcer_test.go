package announcer

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// other is a kind besides None.
type other struct{ None }

func TestSet(t *testing.T) {
	set := Set{"kube-vip": other{}, "none": None{}}
	for kind, want := range map[string]Announcer{"kube-vip": other{}, "": other{}, "none": None{}, "new": None{}} {
		if got := set.Of(kind); got != want {
			t.Errorf("the announcer of kind %q is %T, want %T", kind, got, want)
		}
	}
}

func TestOwners(t *testing.T) {
	held := Election{State: Held, Owner: "srv-b", Rivals: []string{"srv-c"}}
	expired := Election{State: Expired, Owner: "srv-b"}
	for name, tc := range map[string]struct {
		election    Election
		node        string
		owns, other bool
	}{
		"the owner":       {held, "srv-b", true, false},
		"a rival":         {held, "srv-c", false, false},
		"another":         {held, "srv-a", false, true},
		"no name":         {held, "", false, false},
		"expired":         {expired, "srv-a", false, false},
		"the last owner":  {expired, "srv-b", false, false},
		"nothing is read": {Election{}, "srv-a", false, false},
	} {
		if got := tc.election.OwnedBy(tc.node); got != tc.owns {
			t.Errorf("%s: owned %t, want %t", name, got, tc.owns)
		}
		if got := tc.election.OwnedByOther(tc.node); got != tc.other {
			t.Errorf("%s: owned by another %t, want %t", name, got, tc.other)
		}
	}
}

// TestNoneFixes: without an announcer, an address that a node carries is to be deleted, and else nothing.
func TestNoneFixes(t *testing.T) {
	for _, carried := range [][]string{nil, {"bond0.100"}, {"bond0", "bond0.100"}} {
		fixes := None{}.Fixes(Fault{Kind: Stale, Carried: carried})
		commands := 0
		for _, fix := range fixes {
			if fix.Note == "" || fix.Tool != check.AnyTool {
				t.Errorf("on %v: %+v lacks a note, or is for one tool", carried, fix)
			}
			commands += len(fix.Commands)
		}
		if len(fixes) == 0 || commands != len(carried) {
			t.Errorf("on %v: %+v", carried, fixes)
		}
	}
}
