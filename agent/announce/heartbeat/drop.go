package heartbeat

// Drop is the reason why a received frame was dropped.
type Drop uint8

// The reasons.
const (
	// Taken: it was not dropped.
	Taken Drop = iota
	// Malformed: it is not a valid heartbeat.
	Malformed
	// OtherVersion: a version of the format that is not understood.
	OtherVersion
	// OtherKey: signed with an unknown key, for example by another cluster on the same network.
	OtherKey
	// Forged: it names a known key, but was not signed with it.
	Forged
	// Replayed: it was received before, or is older than the newest one.
	Replayed
	// Own: it is our own, sent back by a switch.
	Own
	// OtherInterval: its node sends at another interval, so its timeouts differ from ours.
	OtherInterval

	drops = int(OtherInterval) + 1
)

// String is the label of the reason in metrics.
func (d Drop) String() string {
	names := [drops]string{
		"taken", "malformed", "other_version", "other_key", "forged", "replayed", "own", "other_interval",
	}
	if int(d) >= len(names) {
		return "unknown"
	}
	return names[d]
}
