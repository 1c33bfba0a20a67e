package contract

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	// AnnouncerSecret is the Secret in kube-system that holds the key by which agents know each other's heartbeats; the
	// controller makes it where the agents announce.
	AnnouncerSecret = "phoenixnap-announcer"
	// AnnouncerSecretKey is where the Secret holds it, see ParseAnnouncerKeys.
	AnnouncerSecretKey = "key"
	// AnnouncerView is the ConfigMap in kube-system that says which node announces which address, under the ID of the public
	// network. The agents alone write it.
	AnnouncerView = "phoenixnap-announcer"
)

// AnnouncerKeyLength is the length of a key of AnnouncerSecret in bytes.
const AnnouncerKeyLength = 32

// mostAnnouncerKeys bounds the keys of AnnouncerSecret: the one in use, and one that comes or goes.
const mostAnnouncerKeys = 2

// AnnouncerKey signs heartbeats (HMAC-SHA256, RFC 2104).
type AnnouncerKey [AnnouncerKeyLength]byte

// FormatAnnouncerKey is the key as AnnouncerSecret holds it: a line in base64 (RFC 4648).
func FormatAnnouncerKey(key AnnouncerKey) string {
	return base64.StdEncoding.EncodeToString(key[:]) + "\n"
}

// ParseAnnouncerKeys reads what AnnouncerSecret holds: one key, or two while one takes the place of the other, each on a line
// of its own. The first signs, all of them verify. No error shows any of it.
func ParseAnnouncerKeys(content string) ([]AnnouncerKey, error) {
	var keys []AnnouncerKey
	for i, line := range strings.Fields(content) {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != AnnouncerKeyLength {
			return nil, fmt.Errorf("line %d is no key: want %d bytes in base64", i+1, AnnouncerKeyLength)
		}
		keys = append(keys, AnnouncerKey(raw))
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("it holds no key")
	case len(keys) > mostAnnouncerKeys:
		return nil, fmt.Errorf("it holds %d keys: want at most %d, the one in use and one that comes or goes", len(keys), mostAnnouncerKeys)
	case len(keys) == mostAnnouncerKeys && keys[0] == keys[1]:
		return nil, errors.New("it holds the same key twice")
	default:
		return keys, nil
	}
}
