package heartbeat

import (
	"maps"
	"time"
)

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
	return [drops]string{"taken", "malformed", "other_version", "other_key", "forged", "replayed", "own",
		"other_interval"}[d]
}

const (
	// forgetAfter is after how long a silent node is forgotten. For that time the heartbeats of an agent that
	// restarted on a machine whose clock was set back are dropped.
	forgetAfter = 5 * time.Minute
	// maxNames bounds the names that are kept. Only a sender with the key can fill it.
	maxNames = 4096
)

// interner keeps one string for each name.
type interner struct{ names map[string]string }

func (i *interner) intern(raw []byte) string {
	if name, known := i.names[string(raw)]; known { // the compiler makes no string for this
		return name
	}
	if i.names == nil || len(i.names) >= maxNames {
		i.names = map[string]string{}
	}
	name := string(raw)
	i.names[name] = name
	return name
}

// replayWindow drops heartbeats that were received before and assembles parts. An agent that started later accepts an
// old one of a silent node: an eavesdropper can delay a takeover so, as with ARP, but move no address.
type replayWindow struct{ last map[string]*record }

// record is the newest state of a node.
type record struct {
	boot, sequence uint64
	at             time.Time
	// parts are those of a heartbeat that is not complete, whose sequence number is pending.
	pending uint64
	parts   [][]byte
}

// admit takes a part, whose body may be reused, and returns the body of the heartbeat that it completes, or nil.
func (r *replayWindow) admit(p part, now time.Time) (body []byte, drop Drop) {
	last := r.last[p.node]
	switch {
	case last == nil:
		r.makeRoom(now)
		last = &record{boot: p.boot, at: now}
		r.last[p.node] = last
	case p.boot < last.boot && now.Sub(last.at) < forgetAfter, p.boot == last.boot && p.sequence <= last.sequence:
		return nil, Replayed
	case p.boot != last.boot:
		*last = record{boot: p.boot, at: now}
	default:
	}
	body = p.body
	if p.parts > 1 {
		if body = last.assemble(p); body == nil {
			return nil, Taken
		}
	}
	last.sequence = p.sequence
	last.at = now
	last.parts = nil
	return body, Taken
}

// assemble keeps a part and returns the body when all are there. Only parts of the newest heartbeat are kept.
func (r *record) assemble(p part) []byte {
	if r.pending != p.sequence || len(r.parts) != p.parts {
		if p.sequence < r.pending && r.parts != nil {
			return nil
		}
		r.pending = p.sequence
		r.parts = make([][]byte, p.parts)
	}
	r.parts[p.index] = append([]byte{}, p.body...)
	var body []byte
	for _, each := range r.parts {
		if each == nil {
			return nil
		}
		body = append(body, each...)
	}
	return body
}

func (r *replayWindow) makeRoom(now time.Time) {
	if r.last == nil {
		r.last = map[string]*record{}
	}
	if len(r.last) >= maxNames {
		maps.DeleteFunc(r.last, func(_ string, last *record) bool { return now.Sub(last.at) >= forgetAfter })
	}
}
