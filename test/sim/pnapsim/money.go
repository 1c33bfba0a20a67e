package pnapsim

import "time"

// money meters what an account pays for: blocks, from purchase to deletion.
type money struct {
	purchases int
	deletions int
	byClient  map[string]int
	live      map[*block]time.Time
	seconds   float64
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

func newMoney() money { return money{byClient: map[string]int{}, live: map[*block]time.Time{}} }

func (m *money) bought(b *block, now time.Time) {
	m.purchases++
	m.byClient[b.owner]++
	m.live[b] = now
}

func (m *money) ended(b *block, now time.Time) {
	since, metered := m.live[b]
	if !metered {
		return
	}
	m.deletions++
	m.seconds += now.Sub(since).Seconds()
	delete(m.live, b)
}

// Money returns the bill of an account; the zero value for one that is not there.
func (s *Sim) Money(accountID string) Money {
	defer s.enter()()
	a := s.accounts[accountID]
	if a == nil {
		return Money{}
	}
	bill := Money{
		Purchases: a.money.purchases, Deletions: a.money.deletions, PurchasesByClient: map[string]int{},
		LiveBlocks: len(a.blocks), BoughtAndLive: len(a.money.live), BlockSeconds: a.money.seconds,
	}
	for id, n := range a.money.byClient {
		bill.PurchasesByClient[id] = n
	}
	for _, since := range a.money.live {
		bill.BlockSeconds += s.now.Sub(since).Seconds()
	}
	return bill
}
