package purchase

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// seenLife is how long a record is remembered that is not read any more.
const seenLife = 24 * time.Hour

// Seen remembers since when this process knows each recorded purchase. The time in a record is that of another clock,
// which may be wrong by hours, or years where a person wrote it. It is safe for concurrent use.
type Seen struct {
	now func() time.Time

	mu      sync.Mutex
	records map[seenKey]*seenTimes
}

type seenKey struct {
	nonce, blockID string
	time           int64
}

type seenTimes struct{ first, last time.Time }

// NewSeen returns a memory of nothing. now is the clock.
func NewSeen(now func() time.Time) *Seen {
	return &Seen{now: now, records: map[seenKey]*seenTimes{}}
}

// Bounded returns the record with the time from which it counts, so that it is believed no longer than one of now. A
// time in the future counts as that at which this process saw the record first. So does any time of a purchase without
// an answer: whether it was long ago or the clock was slow is not known, and a second block must not be bought.
// A nil Seen believes every time.
func (s *Seen) Bounded(recorded *ipblock.Purchase) *ipblock.Purchase {
	if recorded == nil || s == nil {
		return recorded
	}
	bounded := *recorded
	first := s.since(seenKey{nonce: recorded.Nonce, blockID: recorded.BlockID, time: recorded.Time.UnixNano()})
	if recorded.BlockID == "" || recorded.Time.After(first) {
		bounded.Time = first
	}
	return &bounded
}

// since returns when the record was seen first.
func (s *Seen) since(key seenKey) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	known := s.records[key]
	if known == nil {
		maps.DeleteFunc(s.records, func(_ seenKey, t *seenTimes) bool { return now.Sub(t.last) > seenLife })
		known = &seenTimes{first: now}
		s.records[key] = known
	}
	known.last = now
	return known.first
}

// BoundedAll is Bounded for records, and for the times at which their objects were created: the API server has another
// clock, too.
func (s *Seen) BoundedAll(all ipblock.Records) ipblock.Records {
	bounded := slices.Clone(all)
	for i := range bounded {
		r := &bounded[i]
		if r.Nonce != "" {
			r.Purchase = *s.Bounded(&r.Purchase)
		}
		r.Created = s.Bounded(&ipblock.Purchase{Nonce: r.Name, Time: r.Created, BlockID: "created"}).Time
	}
	return bounded
}
