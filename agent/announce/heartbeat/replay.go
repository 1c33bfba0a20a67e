package heartbeat

import (
	"maps"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
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
	// OtherKey: signed with an unknown key, as by another cluster on the same network.
	OtherKey
	// Forged: it names a known key, but was not signed with it.
	Forged
	// Replayed: it was received before, or is older than the newest one.
	Replayed
	// Own: it is our own, sent back by a switch.
	Own
	// Implausible: it has a number that no agent sends.
	Implausible
	// OtherCluster: signed with our key by another cluster, or for another network.
	OtherCluster

	drops = int(OtherCluster) + 1
)

// String is the label of the reason in metrics.
func (d Drop) String() string {
	return [drops]string{"taken", "malformed", "other_version", "other_key", "forged", "replayed", "own",
		"implausible", "other_cluster"}[d]
}

const (
	// forgetAfter is after how long a silent node is forgotten. Until then an earlier run of its agent has to prove
	// that its heartbeats are new.
	forgetAfter = 5 * time.Minute
	// maxRuns bounds the runs of a node that are known to have ended.
	maxRuns = 8
	// recent is how many of our own last heartbeats another node may report as the newest that it received.
	recent = 32
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
//
// The numbers of a heartbeat say whether it is newer than others, but they may be wrong: the clock of its machine was
// set back before its agent restarted, or the numbers of one heartbeat before it were far ahead. The proof that it is
// newer is that it reports a later heartbeat of ours as received than all others of its node.
type replayWindow struct {
	last map[string]*record
	// sends is set when we have sent a heartbeat.
	sends bool
	// id is ours, sent the sequence number of our newest heartbeat; quiet is how long a run must not have been heard
	// before an earlier one, which may be another machine with the same name, is accepted.
	id    election.ID
	sent  func() uint64
	quiet time.Duration
}

// record is the newest state of a node.
type record struct {
	boot, sequence uint64
	at             time.Time
	// acked is the sequence number of our newest heartbeat that it reported as received; zero for none.
	acked uint32
	// ended are the newest heartbeats of runs that an earlier one followed.
	ended map[uint64]uint64
	// parts are those of a heartbeat that is not complete, whose sequence number is pending.
	pending uint64
	parts   [][]byte
}

// admit takes a part, whose body may be reused, and returns the body of the heartbeat that it completes, or nil.
func (r *replayWindow) admit(p part, now time.Time) (body []byte, drop Drop) {
	r.start()
	last := r.last[p.node]
	switch {
	case last == nil:
		r.makeRoom(now)
		last = &record{boot: p.boot, at: now}
		r.last[p.node] = last
	case p.boot < last.boot && now.Sub(last.at) < forgetAfter, p.boot == last.boot && p.sequence <= last.sequence,
		p.boot > last.boot && p.sequence <= last.ended[p.boot]:
		return nil, Replayed
	case p.boot != last.boot:
		last.begin(p.boot, now)
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

// start forgets what was received before our first heartbeat. An agent that stood by until then has proved nothing: two
// of them, both with the clock set back, would each wait for the other one's proof until they forget the earlier runs.
func (r *replayWindow) start() {
	if !r.sends && r.sent != nil && r.sent() > 0 {
		r.sends = true
		r.last = nil
	}
}

// begin begins another run of the node.
func (r *record) begin(boot uint64, now time.Time) {
	if boot < r.boot {
		if r.ended == nil || len(r.ended) >= maxRuns {
			r.ended = map[uint64]uint64{}
		}
		r.ended[r.boot] = r.sequence
	}
	*r = record{boot: boot, at: now, acked: r.acked, ended: r.ended}
}

// note notes which of our heartbeats a node reports as received.
func (r *replayWindow) note(h *election.Heartbeat) {
	if acked, ok := r.acked(h); ok && r.isLater(h) {
		r.last[h.Node].acked = acked
	}
}

// acked returns which of our last heartbeats a heartbeat reports as received.
func (r *replayWindow) acked(h *election.Heartbeat) (sequence uint32, ok bool) {
	if r.sent == nil {
		return 0, false
	}
	sequence, found := h.AckOf(r.id)
	age := uint32(r.sent()) - sequence //nolint:gosec // only the lower bits matter
	return sequence, found && sequence > election.Refused && age < recent
}

// isLater reports whether a heartbeat is newer than all others of its node, because it reports a later one of ours.
func (r *replayWindow) isLater(h *election.Heartbeat) bool {
	last := r.last[h.Node]
	acked, ok := r.acked(h)
	return ok && last != nil && (last.acked == election.Unheard || election.IsAfter(acked, last.acked))
}

// readmit takes a heartbeat of one part that admit dropped, if it proves that it is new.
func (r *replayWindow) readmit(h *election.Heartbeat, now time.Time) bool {
	last := r.last[h.Node]
	if !r.isLater(h) || h.Boot != last.boot && now.Sub(last.at) < r.quiet {
		return false
	}
	if h.Boot != last.boot {
		last.begin(h.Boot, now)
	}
	last.sequence = h.Sequence
	last.at = now
	last.parts = nil
	return true
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
