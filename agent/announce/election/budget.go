package election

import "time"

// budget bounds how often the view changes, whatever the reason is: nodes that contradict each other must not flood the
// API server. All nodes count all changes, so that together they make hardly more.
type budget struct {
	// paidAt is when the changes so far are paid for.
	paidAt time.Duration
	// reportedAt is when it was last reported that a change has to wait.
	reportedAt time.Duration
}

const (
	// price is the time between two changes of the view in the long run. Before that, budgetBase of them and
	// budgetEach for each known node may follow each other at once; twice as many if addresses wait for them.
	price      = 3 * time.Second
	budgetBase = 30
	budgetEach = 4
	// reportEvery is the minimum time between two reports that the view changes too often.
	reportEvery = time.Minute
)

// spend counts a change.
func (b *budget) spend(now time.Duration) { b.paidAt = max(b.paidAt, now) + price }

// affords reports whether a change may be made now.
func (e *Election) affords(ch change) bool {
	nodes := len(e.peers) + 1
	if e.view != nil {
		nodes = max(nodes, len(e.members))
	}
	credit := price * time.Duration(budgetBase+budgetEach*nodes)
	if ch.urgent {
		credit *= 2
	}
	due := e.budget.paidAt - credit
	if due <= e.now {
		return true
	}
	e.wake(due)
	if e.now-e.budget.reportedAt >= reportEvery {
		e.budget.reportedAt = e.now
		e.events = append(e.events, Event{Kind: ChangesOften, Number: e.number()})
	}
	return false
}
