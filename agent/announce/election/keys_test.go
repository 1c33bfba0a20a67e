package election

import (
	"fmt"
	"testing"
	"time"
)

// kubeletDelay is how long a kubelet takes at most to update a mounted Secret, and an agent to read it.
const kubeletDelay = 100 * time.Second

// rotation are the contents of the Secret, one after the other: the new key is appended, then used, then the only one.
var rotation = [][]int{{1}, {1, 2}, {2, 1}, {2}}

// rotate writes contents of the Secret one after the other, waits a time after each, and returns for how long an
// address was silent, until all nodes have the last one. Each node reads each content at another time.
func (w *world) rotate(contents [][]int, pause time.Duration) (silent time.Duration) {
	for _, keys := range contents {
		for _, m := range w.nodes {
			w.after(w.between(0, kubeletDelay), func() { m.keys = keys })
		}
		silent = max(silent, w.watch(pause))
	}
	return max(silent, w.watch(kubeletDelay))
}

// TestKeyRotation: a key is replaced, as the guide says, without a moment of silence, a changed member or a moved
// address. Without the waits, or without the step that appends the key, there is silence.
func TestKeyRotation(t *testing.T) {
	for name, tc := range map[string]struct {
		contents [][]int
		pause    time.Duration
		silent   bool
	}{
		"as the guide says":         {rotation[1:], kubeletDelay + time.Second, false},
		"without a wait":            {rotation[1:], 5 * time.Second, true},
		"another key at once":       {rotation[3:], kubeletDelay + 20*time.Second, true},
		"the new key signs first":   {rotation[2:], kubeletDelay + time.Second, true},
		"the old one dropped early": {[][]int{{1, 2}, {2}}, kubeletDelay + time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			var silent time.Duration
			for seed := range uint64(4) {
				w := newWorld(seed, 3+int(seed%2), 2, standardRules())
				w.keepLog = true
				for _, m := range w.nodes {
					m.keys = rotation[0]
				}
				if w.stabilize() == nil {
					t.Fatalf("seed %d: not stable", seed)
				}
				writes := w.writes
				silent = max(silent, w.rotate(tc.contents, tc.pause))
				if w.violation != "" {
					t.Fatalf("seed %d: %s", seed, w.violation)
				}
				if !tc.silent && w.writes != writes {
					t.Errorf("seed %d: %d writes", seed, w.writes-writes)
				}
			}
			if silent > 0 != tc.silent {
				t.Errorf("silent for %s, want any: %t", silent, tc.silent)
			}
			if name == "as the guide says" {
				_, _ = fmt.Fprintf(t.Output(), "figure key_rotation_silent_ms %d ms\n", silent.Milliseconds())
			} else {
				t.Logf("silent for %s", silent)
			}
		})
	}
}
