package heartbeat

import (
	"crypto/subtle"
	"time"
)

const (
	// forget is after how long a silent node is forgotten. An agent that was started anew, on a machine whose clock was set
	// back meanwhile, is not believed for so long.
	forget = 5 * time.Minute
	// mostNames bounds the names that are kept. Only who has the key can fill it.
	mostNames = 4096
)

func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// interner keeps one string for each name.
type interner struct{ names map[string]string }

func (i *interner) intern(raw []byte) string {
	if name, known := i.names[string(raw)]; known { // the compiler makes no string for this
		return name
	}
	if i.names == nil || len(i.names) >= mostNames {
		i.names = map[string]string{}
	}
	name := string(raw)
	i.names[name] = name
	return name
}

// guard refuses what was heard before. What an eavesdropper recorded of a node that is silent now is believed by an agent
// that was started after that; he can delay a takeover with it, as he can with ARP, but it moves no address.
type guard struct{ last map[string]*mark }

type mark struct {
	boot, sequence uint64
	at             time.Time
}

// admit tells whether a message is newer than what was heard of its node.
func (g *guard) admit(m *Message, now time.Time) bool {
	last := g.last[m.Node]
	switch {
	case last == nil:
		g.makeRoom(now)
		g.last[m.Node] = &mark{m.Boot, m.Sequence, now}
		return true
	case m.Boot < last.boot && now.Sub(last.at) < forget, m.Boot == last.boot && m.Sequence <= last.sequence:
		return false
	default:
		*last = mark{m.Boot, m.Sequence, now}
		return true
	}
}

func (g *guard) makeRoom(now time.Time) {
	if g.last == nil {
		g.last = map[string]*mark{}
	}
	if len(g.last) < mostNames {
		return
	}
	for name, last := range g.last {
		if now.Sub(last.at) >= forget {
			delete(g.last, name)
		}
	}
}
