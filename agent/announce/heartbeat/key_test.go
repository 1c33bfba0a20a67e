//go:build linux

package heartbeat

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeyStays: the key that was read last stays in use when the file disappears or becomes invalid, because the Secret
// was deleted or written wrongly, until it holds a key again.
func TestKeyStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	synctest.Test(t, func(t *testing.T) {
		keys := NewKeyFile(path)
		for i, step := range []struct{ write, want string }{
			{"", ""}, {"nothing valid", ""}, {keyOf(1), keyOf(1)}, {"", keyOf(1)}, {"nothing valid", keyOf(1)},
			{keyOf(1) + keyOf(2), keyOf(1) + keyOf(2)}, {"", keyOf(1) + keyOf(2)}, {keyOf(2), keyOf(2)},
		} {
			if step.write == "" {
				_ = os.Remove(path)
			} else if err := os.WriteFile(path, []byte(step.write), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(keyEvery)
			got, err := keys.newest()
			if got != step.want || (err == nil) != (step.want != "") || !errors.Is(err, keys.Err()) {
				t.Errorf("step %d: %t (%v)", i, got == step.want, err)
			}
		}
	})
}
