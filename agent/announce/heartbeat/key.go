package heartbeat

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// keyIDLength and tagLength are the lengths of the ID of the key and of the signature in a frame, in bytes. A
	// signature may be cut to half of its length and more (RFC 2104, section 5).
	keyIDLength = 8
	tagLength   = 16
)

// keyID identifies the key that signed a frame: it distinguishes a cluster from another one on the same network. It
// reveals nothing about the key itself.
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
