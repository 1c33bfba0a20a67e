//go:build linux

package network

import (
	"reflect"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

const (
	// stableTime is how long what an agent knows must not have changed before it may continue in place of an earlier
	// one: the first answers of kube-proxy and the confirming samples come within it. After stableMax changes that do
	// not end, such as those of endpoints, do not matter.
	stableTime = 3 * time.Second
	stableMax  = 30 * time.Second
)

// stability follows whether facts have settled. It belongs to one goroutine.
type stability struct {
	facts        func() election.Facts
	now          func() time.Time
	last         election.Facts
	first, since time.Time
}

// stable reports whether the facts have not changed for a while.
func (s *stability) stable() bool {
	now := s.now()
	facts := s.facts()
	if s.first.IsZero() {
		s.first = now
	}
	if s.since.IsZero() || !reflect.DeepEqual(facts, s.last) {
		s.since = now
		s.last = facts
	}
	return now.Sub(s.since) >= stableTime || now.Sub(s.first) >= stableMax
}
