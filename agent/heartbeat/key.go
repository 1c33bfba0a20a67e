package heartbeat

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
)

const (
	// KeyLength is the length of a key in bytes.
	KeyLength = 32
	// keyIDLength and tagLength are what a frame has of the name of its key and of its signature, in bytes. A signature
	// may be cut to half of its length and more (RFC 2104, section 5).
	keyIDLength = 8
	tagLength   = 16
	// mostKeys bounds the lines of a key file: one in use, and one that comes or goes.
	mostKeys = 2
)

// keyID tells which key a frame was signed with: it tells a cluster from another one on the same network. It says nothing
// of the key itself.
type keyID [keyIDLength]byte

// key signs and verifies. It belongs to one goroutine.
type key struct {
	id  keyID
	mac hash.Hash
	sum []byte
}

// Ring is the keys that are known: the first signs, all of them verify. It belongs to one goroutine.
type Ring struct{ keys []*key }

// ParseKeys reads the content of a key file: one key, or two while one takes the place of the other, each on a line of its
// own in base64 (RFC 4648). No error shows any of it.
func ParseKeys(content string) (*Ring, error) {
	ring := &Ring{}
	for i, line := range strings.Fields(content) {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != KeyLength {
			return nil, fmt.Errorf("line %d is no key: want %d bytes in base64", i+1, KeyLength)
		}
		ring.keys = append(ring.keys, newKey(raw))
	}
	switch {
	case len(ring.keys) == 0:
		return nil, errors.New("it holds no key")
	case len(ring.keys) > mostKeys:
		return nil, fmt.Errorf("it holds %d keys: want at most %d, the one in use and one that comes or goes", len(ring.keys), mostKeys)
	case len(ring.keys) == mostKeys && ring.keys[0].id == ring.keys[1].id:
		return nil, errors.New("it holds the same key twice")
	default:
		return ring, nil
	}
}

// FormatKey writes a key as ParseKeys reads it.
func FormatKey(raw [KeyLength]byte) string { return base64.StdEncoding.EncodeToString(raw[:]) + "\n" }

func newKey(raw []byte) *key {
	name := hmac.New(sha256.New, raw)
	_, _ = name.Write([]byte("phoenixnap-announcer key ID")) // never fails
	k := &key{mac: hmac.New(sha256.New, raw), sum: make([]byte, 0, sha256.Size)}
	copy(k.id[:], name.Sum(nil))
	return k
}

// tag signs what it is given (HMAC-SHA256, RFC 2104). The result is good until the next call.
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
