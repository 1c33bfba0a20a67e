package heartbeat

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// keyEvery is how often a key file is read again. The kubelet takes about a minute to update the file of a changed
// Secret.
const keyEvery = 10 * time.Second

// ErrNoKey means that there is no key yet.
var ErrNoKey = errors.New("there is no key to sign heartbeats with")

// KeyFile reads keys from a file that may appear later, and change.
type KeyFile struct {
	path string

	mu      sync.Mutex
	readAt  time.Time
	content string
	version int
	err     error
}

// NewKeyFile returns the keys in a file; it reads nothing yet. The path may be empty: then there is never a key.
func NewKeyFile(path string) *KeyFile { return &KeyFile{path: path, err: ErrNoKey} }

// Err returns why there is no key to use; nil when there is one. A file that has become unreadable keeps the keys
// that were read.
func (k *KeyFile) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refresh()
	if k.version > 0 {
		return nil
	}
	return k.err
}

// refresh reads the file when the last read is older than keyEvery.
func (k *KeyFile) refresh() {
	if k.path == "" || time.Since(k.readAt) < keyEvery {
		return
	}
	k.readAt = time.Now()
	raw, err := os.ReadFile(k.path)
	if errors.Is(err, os.ErrNotExist) {
		k.err = fmt.Errorf("%w: %s does not exist", ErrNoKey, k.path)
		return
	}
	if err == nil {
		_, err = ParseKeys(string(raw))
	}
	if err != nil {
		k.err = fmt.Errorf("key file %s: %w", k.path, err)
		return
	}
	if string(raw) != k.content || k.version == 0 {
		k.content = string(raw)
		k.version++
	}
}

// keySource is the ring of the newest keys for one goroutine.
type keySource struct {
	file    *KeyFile
	version int
	ring    *Ring
}

func (u *keySource) newest() (*Ring, error) {
	u.file.mu.Lock()
	defer u.file.mu.Unlock()
	u.file.refresh()
	if u.file.version == 0 {
		return nil, u.file.err
	}
	if u.version != u.file.version {
		ring, err := ParseKeys(u.file.content)
		if err != nil {
			return nil, fmt.Errorf("key file %s: %w", u.file.path, err)
		}
		u.ring = ring
		u.version = u.file.version
	}
	return u.ring, nil
}
