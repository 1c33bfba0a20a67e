package election

import "time"

const (
	// maxAhead is how far the number of a view can be ahead of those that are known. It grows by one with every change,
	// and a view that is made from nothing starts at the seconds since 1970: any two clocks differ by less until 2106.
	maxAhead = 1 << 32
	// maxFirst bounds the number of the first view that a node reads. It leaves room for all changes after it.
	maxFirst = MaxNumber / 2
	// doubtEvery is the minimum time between two reports of a number that no view can have.
	doubtEvery = time.Minute
)

// doubts are the numbers that this node does not believe: neither a heartbeat by itself nor the object by itself can
// bring all nodes to wait for a view that does not exist, nor to a number after which there is none.
type doubts struct {
	// object is the number of the object's view; zero when it is believed.
	object uint64
	// reported is when a number was last reported, readAt when the view was last read because of one.
	reported, readAt time.Duration
}

// isPlausible reports whether a view with a number can exist, according to a heartbeat. One that is far ahead is
// believed only if the object has such a view, too.
func (e *Election) isPlausible(number uint64) bool {
	return number <= MaxNumber && number <= max(e.seen, e.First, e.doubts.object)+maxAhead
}

// believes reports whether a view that was read can be what it appears to be.
func (e *Election) believes(v *View) bool {
	return v.Number <= max(e.seen, e.First)+maxAhead || e.view == nil && v.Number <= maxFirst
}

// doubt drops a heartbeat, as if it were lost on the way, and asks the API server whether it can be true.
func (e *Election) doubt(h *Heartbeat) {
	if e.now-e.doubts.readAt >= e.rules.cold {
		e.doubts.readAt = e.now
		e.api.readWanted = true
	}
	e.reportDoubt(h.Node, max(h.Number, h.Seen))
}

// believed returns a view that was read, or nil when it is none that can be believed: then it counts as unreadable, and
// the nodes that know the view write it again.
func (e *Election) believed(v *View) *View {
	e.doubts.object = 0
	if v == nil || e.believes(v) {
		return v
	}
	e.doubts.object = v.Number
	e.reportDoubt("", v.Number)
	return nil
}

func (e *Election) reportDoubt(node string, number uint64) {
	if e.now-e.doubts.reported >= doubtEvery {
		e.doubts.reported = e.now
		e.events = append(e.events, Event{Kind: NumberRefused, Node: node, Number: number})
	}
}
