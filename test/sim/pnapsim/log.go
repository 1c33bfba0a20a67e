package pnapsim

import (
	"maps"
	"slices"
	"time"
)

// Entry is one request in the log.
type Entry struct {
	// Seq numbers requests from 1.
	Seq int `json:"seq"`
	// Time is the model time at which it was served.
	Time time.Time `json:"time"`
	// Client and Account are IDs; empty when they are not known.
	Client  string `json:"client,omitempty"`
	Account string `json:"account,omitempty"`
	// Method and Path are those of the request; Query is its query, encoded.
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	// Operation is method and path template, such as "GET /ips/v1/ip-blocks/{ipBlockId}".
	Operation string `json:"operation,omitempty"`
	// Body of the request; left out for the token endpoint, and with secrets blotted out.
	Body string `json:"body,omitempty"`
	// Status of the answer; 0 when there was none.
	Status int `json:"status"`
	// Message is the error message of the answer.
	Message string `json:"message,omitempty"`
	// Fault is the action of the fault that was injected.
	Fault string `json:"fault,omitempty"`
	// Lost reports that the client never got the answer.
	Lost bool `json:"lost,omitempty"`
}

// maxLog bounds the log; the oldest entries go first. Counters go on.
const maxLog = 100_000

type requestLog struct {
	entries  []*Entry
	total    int
	counters map[string]map[int]int // operation → status → count
}

func (l *requestLog) add(e *Entry) {
	l.total++
	e.Seq = l.total
	if len(l.entries) >= maxLog {
		l.entries = slices.Delete(l.entries, 0, maxLog/10)
	}
	l.entries = append(l.entries, e)
	if l.counters[e.Operation] == nil {
		l.counters[e.Operation] = map[int]int{}
	}
	l.counters[e.Operation][e.Status]++
}

// Log returns the requests after number since, oldest first.
func (s *Sim) Log(since int) []Entry {
	defer s.enter()()
	out := []Entry{}
	for _, e := range s.log.entries {
		if e.Seq > since {
			out = append(out, *e)
		}
	}
	return out
}

// Counters returns how often each operation ended with each status; 0 means without an answer.
func (s *Sim) Counters() map[string]map[int]int {
	defer s.enter()()
	out := map[string]map[int]int{}
	for operation, counts := range s.log.counters {
		out[operation] = maps.Clone(counts)
	}
	return out
}

// Count returns how often an operation, such as "POST /ips/v1/ip-blocks", was asked for.
func (s *Sim) Count(operation string) int {
	total := 0
	for _, n := range s.Counters()[operation] {
		total += n
	}
	return total
}

// money meters what an account pays for: blocks, from purchase to deletion.
type money struct {
	bill Money
	live map[*block]time.Time
}

// Money is the bill of an account so far.
type Money struct {
	// Purchases and Deletions count blocks. Blocks that were there from the start are not counted.
	Purchases int `json:"purchases"`
	Deletions int `json:"deletions"`
	// PurchasesByClient counts them by the client that bought.
	PurchasesByClient map[string]int `json:"purchasesByClient"`
	// LiveBlocks are the account's blocks now.
	LiveBlocks int `json:"liveBlocks"`
	// BoughtAndLive are those of them that were bought since the start.
	BoughtAndLive int `json:"boughtAndLive"`
	// BlockSeconds is model time paid for bought blocks, in seconds.
	BlockSeconds float64 `json:"blockSeconds"`
}

func newMoney() money {
	return money{bill: Money{PurchasesByClient: map[string]int{}}, live: map[*block]time.Time{}}
}

func (m *money) bought(b *block, now time.Time) {
	m.bill.Purchases++
	m.bill.PurchasesByClient[b.owner]++
	m.live[b] = now
}

func (m *money) ended(b *block, now time.Time) {
	since, metered := m.live[b]
	if !metered {
		return
	}
	m.bill.Deletions++
	m.bill.BlockSeconds += now.Sub(since).Seconds()
	delete(m.live, b)
}

// Money returns the bill of an account; the zero value for one that is not there.
func (s *Sim) Money(accountID string) Money {
	defer s.enter()()
	a := s.accounts[accountID]
	if a == nil {
		return Money{}
	}
	bill := a.money.bill
	bill.PurchasesByClient = maps.Clone(bill.PurchasesByClient)
	bill.LiveBlocks = len(a.blocks)
	bill.BoughtAndLive = len(a.money.live)
	for _, since := range a.money.live {
		bill.BlockSeconds += s.now.Sub(since).Seconds()
	}
	return bill
}
