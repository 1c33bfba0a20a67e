package vlan

import "time"

const (
	// settle is how long another uplink than before must stay before it is believed: while a bond is made anew, some other
	// interface may look like the uplink.
	settle = 10 * time.Second
	// budgetSize is how often something may be changed within budgetWindow.
	budgetSize   = 30
	budgetWindow = time.Minute
)

// uplinkMemory is the uplink that is believed, and another that shows.
type uplinkMemory struct {
	believed, other string
	since           time.Time
}

// settled returns how long to wait until name is to be believed.
func (m *uplinkMemory) settled(name string, now time.Time) time.Duration {
	switch {
	case name == m.believed || m.believed == "":
		m.believed, m.other = name, ""
		return 0
	case name == "":
		return 0
	case name != m.other:
		m.other, m.since = name, now
	}
	if wait := settle - now.Sub(m.since); wait > 0 {
		return wait
	}
	m.believed, m.other = name, ""
	return 0
}

// budget bounds how often the agent changes things in a minute, for somebody else may undo each change at once.
type budget struct {
	spent []time.Time
}

// spend takes one from the budget when something is to be done, or returns how long to wait.
func (b *budget) spend(something bool, now time.Time) time.Duration {
	if !something {
		return 0
	}
	for len(b.spent) > 0 && now.Sub(b.spent[0]) >= budgetWindow {
		b.spent = b.spent[1:]
	}
	if len(b.spent) >= budgetSize {
		return budgetWindow - now.Sub(b.spent[0])
	}
	b.spent = append(b.spent, now)
	return 0
}
