package contract

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	// AnnouncerSecret is the Secret in kube-system with the key that authenticates the agents' heartbeats; the
	// controller creates it if the agents announce.
	AnnouncerSecret = "phoenixnap-announcer"
	// AnnouncerSecretKey is the field of the Secret with the key, see ParseAnnouncerKeys.
	AnnouncerSecretKey = "key"
	// AnnouncerView is the ConfigMap in kube-system that records which node announces which address, under the ID of
	// the public network. Only the agents write it.
	AnnouncerView = "phoenixnap-announcer"
)

// AnnouncerKeyLength is the length of a key of AnnouncerSecret in bytes.
const AnnouncerKeyLength = 32

// maxAnnouncerKeys bounds the keys of AnnouncerSecret: the key in use, and one that is added or removed.
const maxAnnouncerKeys = 2

// AnnouncerKey signs heartbeats (HMAC-SHA256, RFC 2104).
type AnnouncerKey [AnnouncerKeyLength]byte

// FormatAnnouncerKey returns the key in the format of AnnouncerSecret: a line in base64 (RFC 4648).
func FormatAnnouncerKey(key AnnouncerKey) string {
	return base64.StdEncoding.EncodeToString(key[:]) + "\n"
}

// ParseAnnouncerKeys parses the content of AnnouncerSecret: one key, or two while one replaces the other, each on a
// separate line. The first signs, all of them verify. Errors do not contain any part of a key.
func ParseAnnouncerKeys(content string) ([]AnnouncerKey, error) {
	var keys []AnnouncerKey
	for i, line := range strings.Fields(content) {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != AnnouncerKeyLength {
			return nil, fmt.Errorf("line %d is not a key: want %d bytes in base64", i+1, AnnouncerKeyLength)
		}
		keys = append(keys, AnnouncerKey(raw))
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("no key")
	case len(keys) > maxAnnouncerKeys:
		return nil, fmt.Errorf("%d keys: want at most %d, the key in use and one that is added or removed",
			len(keys), maxAnnouncerKeys)
	case len(keys) == maxAnnouncerKeys && keys[0] == keys[1]:
		return nil, errors.New("the same key twice")
	default:
		return keys, nil
	}
}
