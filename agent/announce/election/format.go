package election

// firstFormat is the version of the format of heartbeats that all agents understand.
const firstFormat = 1

// maxFormat is the newest version of the format that this agent understands.
func (e *Election) maxFormat() uint8 { return max(e.MaxFormat, firstFormat) }

// format is the version in which to send heartbeats: the newest one that all members of the view, and all other nodes
// that are heard, understand. A member that was never heard may understand no more than the first one, nor may a node
// that has to prove that its heartbeats are new: it can do so only if it reads ours.
func (e *Election) format() uint8 {
	if e.view == nil {
		return firstFormat
	}
	format := e.maxFormat()
	for _, id := range e.members {
		if p := e.peers[id]; id != e.id && p == nil {
			return firstFormat
		}
	}
	for _, p := range e.peers {
		if e.now-p.replaySuspectAt < e.rules.behind {
			return firstFormat
		}
		if e.heard(p) || e.view.has(p.name) {
			format = min(format, max(p.last.MaxFormat, firstFormat))
		}
	}
	return format
}
