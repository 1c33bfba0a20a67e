package heartbeat

import "crypto/sha256"

// scopeLength is the length of a scope in bytes.
const scopeLength = 8

// Scope identifies the agents that agree on a view: those of one cluster on one public network. It is part of what a
// heartbeat signs, because a key is not enough: clusters that were restored from one snapshot, or that are installed
// from one repository, have the same key.
type Scope [scopeLength]byte

// ScopeOf returns the scope of a cluster, which is identified by the UID of its namespace kube-system, and the ID of a
// network.
func ScopeOf(cluster, network string) (s Scope) {
	sum := sha256.Sum256([]byte("phoenixnap-announcer scope\x00" + cluster + "\x00" + network))
	copy(s[:], sum[:])
	return s
}
