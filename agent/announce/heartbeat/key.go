package heartbeat

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// keyIDLength and tagLength are the bytes of the key's ID and of the signature, cut to half (RFC 2104, section 5).
	keyIDLength = 8
	tagLength   = 16
)

// keyID identifies the key, and so the cluster, that signed a frame. It reveals nothing about the key itself.
type keyID [keyIDLength]byte

// key signs and verifies. It belongs to one goroutine.
type key struct {
	id  keyID
	mac hash.Hash
	sum []byte
}

// Ring holds the known keys: the first signs, all of them verify. It belongs to one goroutine.
type Ring struct{ keys []*key }

// ParseKeys makes a ring of the content of a key file, see contract.ParseAnnouncerKeys.
func ParseKeys(content string) (*Ring, error) {
	keys, err := contract.ParseAnnouncerKeys(content)
	if err != nil {
		return nil, err
	}
	ring := &Ring{}
	for _, raw := range keys {
		ring.keys = append(ring.keys, newKey(raw[:]))
	}
	return ring, nil
}

func newKey(raw []byte) *key {
	name := hmac.New(sha256.New, raw)
	_, _ = name.Write([]byte("phoenixnap-announcer key ID")) // never fails
	k := &key{mac: hmac.New(sha256.New, raw), sum: make([]byte, 0, sha256.Size)}
	copy(k.id[:], name.Sum(nil))
	return k
}

// tag signs a message (HMAC-SHA256, RFC 2104). The result is valid until the next call.
func (k *key) tag(message []byte) []byte {
	k.mac.Reset()
	_, _ = k.mac.Write(message) // never fails
	k.sum = k.mac.Sum(k.sum[:0])
	return k.sum[:tagLength]
}

func (r *Ring) find(id keyID) *key {
	for _, k := range r.keys {
		if k.id == id {
			return k
		}
	}
	return nil
}

// keyEvery is the time between reads of a key file. The kubelet takes about a minute to update one.
const keyEvery = 10 * time.Second

var errNoKey = errors.New("there is no key to sign heartbeats with")

// KeyFile reads keys from a file that may appear later, and change.
type KeyFile struct {
	path string

	mu     sync.Mutex
	readAt time.Time
	// content is that of the file when it last held keys, err why it holds none.
	content string
	err     error
	// reported is the last reported reason why the file cannot be used although there is a key.
	reported string
}

// NewKeyFile returns the keys in a file; it reads nothing yet. The path may be empty: then there is never a key.
func NewKeyFile(path string) *KeyFile { return &KeyFile{path: path, err: errNoKey} }

// Err returns why there is no key to use; nil when there is one, even if the file has become unreadable.
func (k *KeyFile) Err() error {
	_, err := k.newest()
	return err
}

// newest returns the newest content with keys. It reads the file when the last read is older than keyEvery.
func (k *KeyFile) newest() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path != "" && time.Since(k.readAt) >= keyEvery {
		k.readAt = time.Now()
		k.err = k.read()
	}
	if k.content == "" {
		return "", k.err
	}
	k.report()
	return k.content, nil
}

// report logs why the file cannot be used any more, once for each reason. The key that was read last stays in use: the
// other agents know it, too.
func (k *KeyFile) report() {
	reason := ""
	if k.err != nil {
		reason = k.err.Error()
	}
	if reason != k.reported && reason != "" {
		klog.Background().Info("The key file of the announcer cannot be used, continuing with the key that was read "+
			"last. Restore the Secret before the agent restarts", "secret",
			metav1.NamespaceSystem+"/"+contract.AnnouncerSecret, "reason", reason)
	}
	k.reported = reason
}

func (k *KeyFile) read() error {
	raw, err := os.ReadFile(k.path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s does not exist", errNoKey, k.path)
	}
	if err == nil {
		_, err = ParseKeys(string(raw))
	}
	if err != nil {
		return fmt.Errorf("key file %s: %w", k.path, err)
	}
	k.content = string(raw)
	return nil
}

// keySource is the ring of the newest keys for one goroutine.
type keySource struct {
	file    *KeyFile
	content string
	ring    *Ring
}

func (k *keySource) newest() (*Ring, error) {
	content, err := k.file.newest()
	if err != nil || content == k.content {
		return k.ring, err
	}
	if k.ring, err = ParseKeys(content); err != nil {
		return nil, fmt.Errorf("key file %s: %w", k.file.path, err)
	}
	k.content = content
	return k.ring, nil
}
