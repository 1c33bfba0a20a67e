// Package arp probes by ARP which machine holds an address and listens to announcements, on one interface.
package arp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
)

const (
	hardwareEthernet = 1 // RFC 826, ar$hrd
	macLength        = 6
)

// Announcement is the content of a received ARP packet: MAC holds Address.
type Announcement struct {
	Address netip.Addr
	MAC     string
	// Reply is set for a reply; a request claims the sender's address, too (RFC 5227, section 2.1.1).
	Reply bool
	// Target is what a request asks for, or the receiver of a reply. For a gratuitous packet it is Address.
	Target netip.Addr
}

// Asks reports whether the packet asks for an address other than its own.
func (a Announcement) Asks() bool { return !a.Reply && a.Target != a.Address }

// Drop is the reason why a received packet is no announcement.
type Drop string

// The reasons to drop a packet.
const (
	Kept         Drop = ""
	Malformed    Drop = "malformed"
	NotEthernet  Drop = "not IPv4 over Ethernet"
	NotAddressed Drop = "neither request nor reply"
	Probe        Drop = "probe without a sender address"
	BadSender    Drop = "sender hardware address is no unicast address"
)

// Parse reads the payload of an Ethernet frame of type ARP. It returns for every input.
func Parse(payload []byte) (Announcement, Drop) {
	var p arp.Packet
	// Lengths other than Ethernet's and IPv4's are rejected before the library uses them.
	if len(payload) >= 6 && (payload[4] != macLength || payload[5] != net.IPv4len) {
		return Announcement{}, NotEthernet
	}
	if err := p.UnmarshalBinary(payload); err != nil {
		return Announcement{}, Malformed
	}
	switch {
	case p.HardwareType != hardwareEthernet, p.ProtocolType != uint16(ethernet.EtherTypeIPv4):
		return Announcement{}, NotEthernet
	case p.Operation != arp.OperationRequest && p.Operation != arp.OperationReply:
		return Announcement{}, NotAddressed
	case p.SenderIP.IsUnspecified():
		return Announcement{}, Probe
	case !unicast(p.SenderHardwareAddr):
		return Announcement{}, BadSender
	}
	return Announcement{
		Address: p.SenderIP, MAC: p.SenderHardwareAddr.String(),
		Reply: p.Operation == arp.OperationReply, Target: p.TargetIP,
	}, Kept
}

func unicast(mac net.HardwareAddr) bool {
	return mac[0]&1 == 0 && !bytes.Equal(mac, make(net.HardwareAddr, macLength))
}

// request encodes a broadcast request; a source of 0.0.0.0 makes it a probe. RFC 5227 requires no target MAC.
func request(mac net.HardwareAddr, source, target netip.Addr) ([]byte, error) {
	p, err := arp.NewPacket(arp.OperationRequest, mac, source, make(net.HardwareAddr, macLength), target)
	if err != nil {
		return nil, fmt.Errorf("encode a request for %s: %w", target, err)
	}
	return p.MarshalBinary()
}

// Heard is a received ARP packet.
type Heard struct {
	Announcement
	// At is when it was received.
	At time.Time
	// Own reports whether this machine sent it.
	Own bool
}

// Counters count packets since the Listener was made.
type Counters struct {
	// Heard are those of other machines, Sent those of this one: the kernel's and kube-vip's as well as ours.
	Heard, Sent uint64
	// Dropped are those that claim nothing: malformed, or not about IPv4 addresses. Probes (RFC 5227) are among them.
	Dropped uint64
}

// Question asks who holds Target. Source is the sender address of the request: an address of this node, or 0.0.0.0
// for a probe. It must never be an address that another machine may hold, because every listener would learn it.
type Question struct {
	Target, Source netip.Addr
	// To is the hardware address that gets the first request, if Target was last heard there (RFC 1122, section
	// 2.3.2.1, unicast poll); nil to ask all machines. Repeated requests ask all machines.
	To net.HardwareAddr
}

// Answer is what was received about a target.
type Answer struct {
	// MACs claimed the target, sorted, in lower case, without our own; the first maxClaimants of them.
	MACs []string
	// Replied reports whether at least one claim was a reply to us; gratuitous ones are not.
	Replied bool
	// RTT is the round trip of the first reply, Within the longest that it can be. They differ when a request was
	// repeated and replies are missing: RTT counts from the last request before the reply, Within from the first.
	RTT, Within time.Duration
}

// maxClaimants bounds the listed machines that claim an address: a flood must not fill memory, log and condition.
const maxClaimants = 8

// Prober sends questions on an interface.
type Prober struct {
	// Rounds is how often an unanswered question is sent.
	Rounds int
	// Interval is the time between rounds, and how long the last one is listened to.
	Interval time.Duration
	// Listen opens the interface. NewProber sets it; a test replaces it.
	Listen func(interfaceName string) (net.PacketConn, net.HardwareAddr, error)
}

// NewProber returns a Prober with the timing of the agent: three rounds, 300 ms apart.
func NewProber() *Prober {
	return &Prober{Rounds: 3, Interval: 300 * time.Millisecond, Listen: listen}
}

// listen opens a socket for ARP on an interface. It is opened again for each set of questions, so that it does not
// matter when an interface was deleted and made again, or has a new hardware address.
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

// Ask sends all questions at once and returns an answer for each target, in the order of the questions. It takes one
// interval when every target replies in the first round, and at most Rounds intervals; when a reply comes only after
// a request was repeated, up to as long again as that reply took.
func (p *Prober) Ask(ctx context.Context, interfaceName string, questions []Question) ([]Answer, error) {
	if len(questions) == 0 {
		return nil, nil
	}
	conn, mac, err := p.Listen(interfaceName)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	s := &session{
		conn: conn, mac: mac, questions: questions,
		answers: make([]Answer, len(questions)), exchanges: make([]exchange, len(questions)),
	}
	for range p.Rounds {
		if err = s.round(ctx, p.Interval); err != nil || s.complete() {
			break
		}
	}
	if until := s.outstanding(p.Interval / 3); err == nil && !until.IsZero() {
		err = s.listen(ctx, until)
	}
	err = errors.Join(err, conn.Close())
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("probe by ARP on %s: %w", interfaceName, err)
	}
	for i := range s.answers {
		s.answers[i].RTT, s.answers[i].Within = s.exchanges[i].roundTrip()
	}
	return s.answers, nil
}

// Claimed probes addresses (RFC 5227, section 2.1.1) and returns those that another machine claims. What is probed once
// may be missed on a lossy wire.
func (p *Prober) Claimed(ctx context.Context, interfaceName string, addresses []netip.Addr) (map[netip.Addr]bool,
	error) {
	questions := make([]Question, len(addresses))
	for i, a := range addresses {
		questions[i] = Question{Target: a, Source: netip.IPv4Unspecified()}
	}
	answers, err := p.Ask(ctx, interfaceName, questions)
	claimed := map[netip.Addr]bool{}
	for i, a := range answers {
		if len(a.MACs) > 0 {
			claimed[addresses[i]] = true
		}
	}
	return claimed, err
}

// session is one set of questions on an open socket.
type session struct {
	conn      net.PacketConn
	mac       net.HardwareAddr
	questions []Question
	answers   []Answer
	exchanges []exchange
}

// exchange is when a target was asked, and when the first machine that replied did so.
type exchange struct {
	requests, replies []time.Time
	by                string
}

// ambiguous reports whether it is unknown which request was answered.
func (e exchange) ambiguous() bool {
	return len(e.replies) > 0 && len(e.requests) > 1 &&
		e.replies[0].After(e.requests[1]) && len(e.replies) < len(e.requests)
}

// roundTrip returns the shortest and the longest time that the first reply can have taken. When each request got its
// reply, the first reply is that to the first request.
func (e exchange) roundTrip() (least, most time.Duration) {
	if len(e.replies) == 0 {
		return 0, 0
	}
	most = e.replies[0].Sub(e.requests[0])
	if !e.ambiguous() {
		return most, most
	}
	for _, sent := range e.requests {
		if sent.Before(e.replies[0]) {
			least = e.replies[0].Sub(sent)
		}
	}
	return least, most
}

// outstanding is until when to listen for replies that show which request the first one answered: the last is due
// when it takes as long as the first can have taken. Zero when nothing is ambiguous.
func (s *session) outstanding(margin time.Duration) (until time.Time) {
	for _, e := range s.exchanges {
		if !e.ambiguous() {
			continue
		}
		_, most := e.roundTrip()
		if due := e.requests[len(e.requests)-1].Add(most + margin); due.After(until) {
			until = due
		}
	}
	return until
}

// round sends requests to the targets that have not replied and listens for one interval.
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
		to := ethernet.Broadcast
		if q.To != nil && len(s.exchanges[i].requests) == 0 {
			to = q.To
		}
		if _, err := s.conn.WriteTo(payload, &packet.Addr{HardwareAddr: to}); err != nil {
			return err
		}
		s.exchanges[i].requests = append(s.exchanges[i].requests, sent)
	}
	return s.listen(ctx, sent.Add(interval))
}

// listen handles packets until a time.
func (s *session) listen(ctx context.Context, until time.Time) error {
	if err := s.conn.SetReadDeadline(until); err != nil {
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
			s.note(claim, time.Now())
		}
	}
	return ctx.Err()
}

func (s *session) note(claim Announcement, now time.Time) {
	if claim.MAC == s.mac.String() {
		return
	}
	for i, q := range s.questions {
		if q.Target != claim.Address {
			continue
		}
		answer := &s.answers[i]
		e := &s.exchanges[i]
		if at, known := slices.BinarySearch(answer.MACs, claim.MAC); !known && len(answer.MACs) < maxClaimants {
			answer.MACs = slices.Insert(answer.MACs, at, claim.MAC)
		}
		// An announcer may continue to send gratuitous replies although the kernel below it does not answer.
		if !claim.Reply || claim.Target == claim.Address || len(e.requests) == 0 {
			continue
		}
		if answer.Replied = true; len(e.replies) == 0 {
			e.by = claim.MAC
		}
		if e.by == claim.MAC && len(e.replies) < len(e.requests) {
			e.replies = append(e.replies, now)
		}
	}
}

// complete reports whether another round would send nothing. Probes, which expect no reply, are not repeated when all
// else has replied: their rounds only matter on a lossy wire, where the next sample probes again.
func (s *session) complete() bool {
	for i, q := range s.questions {
		if !s.answers[i].Replied && !q.Source.IsUnspecified() {
			return false
		}
	}
	return true
}
