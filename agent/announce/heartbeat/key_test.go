//go:build linux

package heartbeat

import (
	"errors"
	"testing"
)

// TestKeyStays: the key that was read last stays in use when the Secret is deleted, cannot be read or becomes invalid,
// until it holds a key again.
func TestKeyStays(t *testing.T) {
	unreadable := errors.New("the Secret cannot be read")
	keys := NewKeys()
	if _, err := keys.newest(); !errors.Is(err, errNoKey) {
		t.Errorf("before the Secret was read: %v", err)
	}
	for i, step := range []struct{ content, want string }{
		{"", ""},
		{"nothing valid", ""},
		{keyOf(1), keyOf(1)},
		{"", keyOf(1)},
		{"nothing valid", keyOf(1)},
		{keyOf(1) + keyOf(2), keyOf(1) + keyOf(2)},
		{"", keyOf(1) + keyOf(2)},
		{keyOf(2), keyOf(2)},
	} {
		if step.content == "" {
			keys.Set("", unreadable)
		} else {
			keys.Set(step.content, nil)
		}
		got, err := keys.newest()
		if got != step.want || (err == nil) != (step.want != "") || !errors.Is(err, keys.Err()) {
			t.Errorf("step %d: %t (%v)", i, got == step.want, err)
		}
		if step.content == "" && step.want == "" && !errors.Is(err, unreadable) {
			t.Errorf("step %d: %v, want why there is no key", i, err)
		}
	}
}
