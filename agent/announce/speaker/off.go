//go:build linux

package speaker

import (
	"context"
	"maps"
	"time"

	"k8s.io/klog/v2"
)

const (
	// offEvery is how often silent members are checked, offAfter how long a member must be silent before.
	offEvery = 10 * time.Second
	offAfter = 10 * time.Second
)

// watchOff checks periodically whether members that were silent for long are certainly off.
func (s *session) watchOff(ctx context.Context) error {
	ticker := time.NewTicker(offEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		off := map[string]bool{}
		for _, member := range s.silent() {
			isOff, err := s.Off(ctx, member)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Unknown whether a silent Node is off", "node", member, "reason",
					err.Error())
				continue
			}
			if isOff {
				off[member] = true
			}
		}
		s.mu.Lock()
		changed := !maps.Equal(off, s.off)
		s.off = off
		s.mu.Unlock()
		if changed {
			s.Changed()
		}
	}
}

// silent returns the members that were not heard for long.
func (s *session) silent() (members []string) {
	state := s.State()
	now := s.Clock()
	if state.View == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, member := range state.View.Members {
		last, found := s.heard[member]
		if !found {
			s.heard[member] = now
		} else if member != s.Node && now-last >= offAfter {
			members = append(members, member)
		}
	}
	return members
}
