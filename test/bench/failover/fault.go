//go:build linux

package failover

import (
	"errors"
	"syscall"
)

// fault is what happens to the node that announces the address.
type fault struct {
	// name is the name in figures, what describes it in words.
	name, what string
	make       func(s *segment, f *fleet, i int) error
	// twoAnswer reports that the address may stay behind, so that two machines answer.
	twoAnswer bool
	// wakes reports that the program continues after the takeover.
	wakes bool
}

// faults are all of them.
func faults() []fault {
	return []fault{
		{name: "node_dead", what: "all its processes stopped and its port cut at once",
			make: func(s *segment, f *fleet, i int) error {
				return errors.Join(s.cut(i, true), f.signal(i, syscall.SIGSTOP))
			}},
		{name: "killed", what: "its announcer killed", twoAnswer: true,
			make: func(_ *segment, f *fleet, i int) error { return f.signal(i, syscall.SIGKILL) }},
		{name: "stopped", what: "its announcer stopped, and going on later", twoAnswer: true, wakes: true,
			make: func(_ *segment, f *fleet, i int) error {
				return f.signal(i, syscall.SIGSTOP)
			}},
		{name: "vlan_cut", what: "its port cut, the API server still reached",
			make: func(s *segment, _ *fleet, i int) error { return s.cut(i, true) }},
		{name: "drained", what: "its announcer asked to end",
			make: func(_ *segment, f *fleet, i int) error { return f.signal(i, syscall.SIGTERM) }},
	}
}
