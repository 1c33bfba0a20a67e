package vlan

import "time"

const (
	// settleTime is how long another uplink must stay before it is used: while a bond is rebuilt, some other
	// interface may look like the uplink.
	settleTime = 10 * time.Second
	// budgetSize is how often something may be changed within budgetWindow.
	budgetSize   = 30
	budgetWindow = time.Minute
)

// uplinkDebounce is the uplink in use, and another one that was found instead.
type uplinkDebounce struct {
	current, other string
	since          time.Time
}

// wait returns how long to wait until the uplink name may be used.
func (m *uplinkDebounce) wait(name string, now time.Time) time.Duration {
	switch {
	case name == m.current || m.current == "":
		m.current = name
		m.other = ""
		return 0
	case name == "":
		return 0
	case name != m.other:
		m.other = name
		m.since = now
	}
	if wait := settleTime - now.Sub(m.since); wait > 0 {
		return wait
	}
	m.current = name
	m.other = ""
	return 0
}

// budget bounds how often the agent changes things in a minute, because another program may undo each change at once.
type budget struct {
	spent []time.Time
}

// spend takes one from the budget when there is something to do, or returns how long to wait.
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
