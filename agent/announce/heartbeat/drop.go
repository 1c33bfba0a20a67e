package heartbeat

// Drop is the reason for which a received frame was not taken.
type Drop uint8

// The reasons.
const (
	// Taken: it was taken.
	Taken Drop = iota
	// Malformed: no heartbeat, or one that does not say what it should.
	Malformed
	// OtherVersion: a version of the format that is not understood.
	OtherVersion
	// OtherKey: signed with a key that is not known, as another cluster on the same network does.
	OtherKey
	// Forged: it names a key that is known, but was not signed with it.
	Forged
	// Replayed: it was heard before, or is older than what was heard.
	Replayed
	// Own: it is our own, which a switch gave back.
	Own
	// OtherInterval: its node sends at another interval, so it means something else by silence.
	OtherInterval

	drops = int(OtherInterval) + 1
)

// String is the label of the reason in metrics.
func (d Drop) String() string {
	names := [drops]string{"taken", "malformed", "other_version", "other_key", "forged", "replayed", "own", "other_interval"}
	if int(d) >= len(names) {
		return "unknown"
	}
	return names[d]
}
