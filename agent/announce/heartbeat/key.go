package heartbeat

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"hash"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// keyIDLength and tagLength are the bytes of the key's ID and of the signature, cut to half (RFC 2104, section 5).
	keyIDLength = 8
	tagLength   = 16
)

// keyID identifies the key that signed a frame. It reveals nothing about the key itself.
type keyID [keyIDLength]byte

// key signs and verifies. It belongs to one goroutine.
type key struct {
	id  keyID
	mac hash.Hash
	sum []byte
}

// Ring holds the known keys: the first signs, all of them verify, in one scope. It belongs to one goroutine.
type Ring struct {
	keys  []*key
	scope Scope
}

// ParseKeys makes a ring of the content of the Secret, see contract.ParseAnnouncerKeys.
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

// errNoKey is the reason before the Secret was read for the first time.
var errNoKey = errors.New("the Secret with the key to sign heartbeats with has not been read yet")

// Keys are the keys of the cluster as they were last read from their Secret. They may come later, and change.
type Keys struct {
	mu sync.Mutex
	// content is that of the Secret when it last held keys, err why the newest read found none.
	content string
	err     error
	// reported is the last reported reason why the Secret cannot be used although there is a key.
	reported string
}

// NewKeys returns keys that have not been read yet.
func NewKeys() *Keys { return &Keys{err: errNoKey} }

// Set takes the content of the Secret, or the error with which it could not be read.
func (k *Keys) Set(content string, err error) {
	if err == nil {
		_, err = ParseKeys(content)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	if err == nil {
		k.content = content
	}
	k.report()
}

// Err returns why there is no key to use; nil when there is one, even if the Secret has become unreadable.
func (k *Keys) Err() error {
	_, err := k.newest()
	return err
}

// newest returns the newest content with keys.
func (k *Keys) newest() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.content == "" {
		return "", k.err
	}
	return k.content, nil
}

// report logs why the Secret cannot be used any more, once for each reason. The key that was read last stays in use:
// the other agents know it, too.
func (k *Keys) report() {
	reason := ""
	if k.err != nil {
		reason = k.err.Error()
	}
	if k.content != "" && reason != k.reported && reason != "" {
		klog.Background().Info("The key of the announcer cannot be read, continuing with the key that was read last. "+
			"Restore the Secret before the agent restarts", "secret",
			metav1.NamespaceSystem+"/"+contract.AnnouncerSecret, "reason", reason)
	}
	k.reported = reason
}

// keySource is the ring of the newest keys for one goroutine.
type keySource struct {
	keys    *Keys
	content string
	ring    *Ring
}

func (k *keySource) newest() (*Ring, error) {
	content, err := k.keys.newest()
	if err != nil || content == k.content {
		return k.ring, err
	}
	if k.ring, err = ParseKeys(content); err != nil {
		return nil, err
	}
	k.content = content
	return k.ring, nil
}
