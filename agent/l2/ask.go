package l2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
)

// Question asks who holds Target. Source is the sender address of the request: an address of the asking node, or 0.0.0.0
// for a probe. It must never be an address that somebody else may hold, for every listener would learn it.
type Question struct {
	Target, Source netip.Addr
}

// Answer is what was heard about a target.
type Answer struct {
	// MACs claimed the target, sorted, in lower case, without our own; the first maxClaimants of them.
	MACs []string
	// Replied tells whether at least one claim was a reply.
	Replied bool
	// RTT is the time from the last request to the first reply.
	RTT time.Duration
}

// maxClaimants bounds how many machines are named that claim one address: a flood of invented ones must not fill memory,
// log and the Node's condition.
const maxClaimants = 8

// Asker puts questions on an interface.
type Asker struct {
	// Rounds is how often a question without an answer is repeated.
	Rounds int
	// Interval is the time between rounds, and how long the last one is listened to.
	Interval time.Duration
	// Listen opens the interface. Set in NewAsker; a test puts a wire of its own here.
	Listen func(interfaceName string) (net.PacketConn, net.HardwareAddr, error)
}

// NewAsker returns an asker with the timing of the agent: three rounds, 300 ms apart. A duplicate holder has this
// long to answer, too.
func NewAsker() *Asker {
	return &Asker{Rounds: 3, Interval: 300 * time.Millisecond, Listen: listen}
}

// listen opens a socket for ARP on an interface. It is opened anew for each set of questions, so that an interface that
// was deleted and made again, or has a new hardware address, is no trouble.
func listen(interfaceName string) (net.PacketConn, net.HardwareAddr, error) {
	link, err := interfaceNamed(interfaceName)
	if err != nil {
		return nil, nil, fmt.Errorf("find interface %s: %w", interfaceName, err)
	}
	conn, err := packet.Listen(link, packet.Datagram, int(ethernet.EtherTypeARP), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("open a packet socket on %s (takes the capability NET_RAW): %w", interfaceName, err)
	}
	return conn, link.HardwareAddr, nil
}

// interfaceNamed finds an interface. Unlike net.InterfaceByName it does not list all of them, which may be hundreds.
func interfaceNamed(name string) (*net.Interface, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	a := link.Attrs()
	return &net.Interface{Index: a.Index, MTU: a.MTU, Name: a.Name, HardwareAddr: a.HardwareAddr, Flags: a.Flags}, nil
}

// Ask puts all questions at once and returns an answer for each target, in the order of the questions. It takes one
// interval when every target replies in the first round, and at most Rounds intervals.
func (a *Asker) Ask(ctx context.Context, interfaceName string, questions []Question) ([]Answer, error) {
	if len(questions) == 0 {
		return nil, nil
	}
	conn, mac, err := a.Listen(interfaceName)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	s := &session{conn: conn, mac: mac, questions: questions, answers: make([]Answer, len(questions))}
	for range a.Rounds {
		if err = s.round(ctx, a.Interval); err != nil || s.complete() {
			break
		}
	}
	err = errors.Join(err, conn.Close())
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask by ARP on %s: %w", interfaceName, err)
	}
	return s.answers, nil
}

// session is one set of questions on an open socket.
type session struct {
	conn      net.PacketConn
	mac       net.HardwareAddr
	questions []Question
	answers   []Answer
}

// round asks for the targets that have not replied and listens for one interval.
func (s *session) round(ctx context.Context, interval time.Duration) error {
	sent := time.Now()
	for i, q := range s.questions {
		if s.answers[i].Replied {
			continue
		}
		payload, err := request(s.mac, q.Source, q.Target)
		if err != nil {
			return err
		}
		if _, err := s.conn.WriteTo(payload, &packet.Addr{HardwareAddr: ethernet.Broadcast}); err != nil {
			return err
		}
	}
	if err := s.conn.SetReadDeadline(sent.Add(interval)); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for ctx.Err() == nil {
		n, _, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if claim, drop := Parse(buffer[:n]); drop == Kept {
			s.note(claim, time.Since(sent))
		}
	}
	return ctx.Err()
}

func (s *session) note(claim Claim, after time.Duration) {
	if claim.MAC == s.mac.String() {
		return
	}
	for i, q := range s.questions {
		if q.Target != claim.Address {
			continue
		}
		answer := &s.answers[i]
		if at, known := slices.BinarySearch(answer.MACs, claim.MAC); !known && len(answer.MACs) < maxClaimants {
			answer.MACs = slices.Insert(answer.MACs, at, claim.MAC)
		}
		if claim.Reply && !answer.Replied {
			answer.Replied, answer.RTT = true, after
		}
	}
}

// complete tells whether another round would ask nothing. Probes expect silence, so they are not waited for twice when
// everything else has replied: three rounds of a probe only matter on a lossy wire, where the next sample asks again.
func (s *session) complete() bool {
	for i, q := range s.questions {
		if !s.answers[i].Replied && !q.Source.IsUnspecified() {
			return false
		}
	}
	return true
}
