//go:build linux

package arp

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// listenCheck is how often a listener checks that its interface is still the same.
	listenCheck = 10 * time.Second
	// drainInterval is the time after which a listener reads the packets that have arrived, all at once: waking up
	// costs more than reading, and on a network with hundreds of addresses a hundred packets arrive in a second.
	drainInterval = time.Second
	// maxDrain is how many it reads then at most; a flood beyond that is lost to it, but does not load the node.
	maxDrain = 4096
	// reopenPause is the pause before the interface is opened again.
	reopenPause = time.Second
)

// Wire is the source of packets.
type Wire interface {
	// Drain passes on the packets that have arrived, up to a limit, and does not wait for more. A packet is valid
	// during the call.
	Drain(limit int, take func(payload []byte)) error
	Close() error
}

// Listener receives every ARP packet on one interface, including those that this machine sends.
type Listener struct {
	// Interface returns the current name of the interface; empty while there is none.
	Interface func() string
	// Hear is called with each packet that claims an address; it must not block.
	Hear func(Heard)
	// Open opens the interface. NewListener sets it; a test replaces it.
	Open func(interfaceName string) (Wire, *net.Interface, error)

	heard, sent, dropped atomic.Uint64
}

// NewListener returns a listener; it starts nothing.
func NewListener(interfaceName func() string, hear func(Heard)) *Listener {
	return &Listener{Interface: interfaceName, Hear: hear, Open: openAll}
}

// Counters returns what was counted so far.
func (l *Listener) Counters() Counters {
	return Counters{Heard: l.heard.Load(), Sent: l.sent.Load(), Dropped: l.dropped.Load()}
}

// Run listens until ctx ends. It waits for a missing interface and opens one again that was created again.
func (l *Listener) Run(ctx context.Context) error {
	reported := ""
	for ctx.Err() == nil {
		name := l.Interface()
		if name != "" {
			err := l.listen(ctx, name)
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != reported {
				// An interface that is missing for long is logged once.
				klog.FromContext(ctx).Info("Failed to listen to ARP, retrying", "interface", name, "reason", text)
				reported = text
			}
		}
		loop.Sleep(ctx, reopenPause)
	}
	return nil
}

// listen reads from one socket until the interface changes or ctx ends.
func (l *Listener) listen(ctx context.Context, name string) error {
	wire, link, err := l.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = wire.Close() }()
	klog.FromContext(ctx).V(2).Info("Listening to ARP", "interface", name)
	own := link.HardwareAddr.String()
	for l.Interface() == name && ctx.Err() == nil {
		if err := l.listenFor(ctx, wire, own); err != nil {
			return fmt.Errorf("listen to ARP on %s: %w", name, err)
		}
		current, err := interfaceNamed(name)
		if err == nil && (current.Index != link.Index || current.HardwareAddr.String() != own) {
			return nil
		}
	}
	return nil
}

// listenFor handles packets until it is time to check the interface; own is its hardware address.
func (l *Listener) listenFor(ctx context.Context, wire Wire, own string) error {
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for range listenCheck / drainInterval {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := wire.Drain(maxDrain, func(payload []byte) { l.take(payload, own) }); err != nil {
			return err
		}
	}
	return nil
}

// take passes on a packet.
func (l *Listener) take(payload []byte, own string) {
	claim, drop := Parse(payload)
	switch {
	case drop != Kept:
		l.dropped.Add(1)
		return
	case claim.MAC == own:
		l.sent.Add(1)
	default:
		l.heard.Add(1)
	}
	l.Hear(Heard{Announcement: claim, At: time.Now(), Own: claim.MAC == own})
}
