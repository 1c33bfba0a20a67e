// Command announce stands for the rest of a network. It announces addresses by gratuitous ARP as kube-vip does, all of
// them in a row, every three seconds, with a request and a reply in turn:
//
//	announce --interface bond0.56 198.18.0.66 198.18.0.67
//
// or asks for them one after another, as the agents of the other nodes do together:
//
//	announce --interface bond0.56 --ask-from 198.18.0.4 --every 30s 198.18.0.66 198.18.0.67
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

func main() {
	name := flag.String("interface", "", "interface to announce on")
	every := flag.Duration("every", 3*time.Second,
		"time between two announcements of an address (kube-vip's vip_arpRate)")
	source := flag.String("ask-from", "", "own address to ask with, in place of announcing")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *name, *source, *every, flag.Args()) })
}

func run(ctx context.Context, name, source string, every time.Duration, addresses []string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	conn, err := packet.Listen(link, packet.Datagram, int(ethernet.EtherTypeARP), nil)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = conn.Close() }()
	if source != "" {
		asked, err := questions(link.HardwareAddr, source, addresses)
		if err != nil {
			return err
		}
		return repeat(ctx, conn, every/time.Duration(max(1, len(asked))), single(asked))
	}
	requests, errRequests := frames(arp.OperationRequest, link.HardwareAddr, ethernet.Broadcast, addresses)
	replies, errReplies := frames(arp.OperationReply, link.HardwareAddr, link.HardwareAddr, addresses)
	if err := errors.Join(errRequests, errReplies); err != nil {
		return err
	}
	return repeat(ctx, conn, every, [][][]byte{requests, replies})
}

// single makes each frame a burst of its own.
func single(all [][]byte) [][][]byte {
	bursts := make([][][]byte, len(all))
	for i, frame := range all {
		bursts[i] = [][]byte{frame}
	}
	return bursts
}

// repeat sends a burst of frames at each tick, one burst after another and round again, until ctx ends.
func repeat(ctx context.Context, conn *packet.Conn, every time.Duration, bursts [][][]byte) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := 0; ; i++ {
		for _, frame := range bursts[i%len(bursts)] {
			if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: ethernet.Broadcast}); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// questions are requests for addresses (RFC 826).
func questions(own net.HardwareAddr, source string, addresses []string) ([][]byte, error) {
	sender, err := netip.ParseAddr(source)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", source, err)
	}
	return encode(addresses, func(address netip.Addr) (*arp.Packet, error) {
		return arp.NewPacket(arp.OperationRequest, own, sender, make(net.HardwareAddr, len(own)), address)
	})
}

// frames are gratuitous packets (RFC 5227, section 3), with the target hardware addresses that kube-vip gives them.
func frames(operation arp.Operation, own, target net.HardwareAddr, addresses []string) ([][]byte, error) {
	return encode(addresses, func(address netip.Addr) (*arp.Packet, error) {
		return arp.NewPacket(operation, own, address, target, address)
	})
}

func encode(addresses []string, packet func(netip.Addr) (*arp.Packet, error)) ([][]byte, error) {
	all := make([][]byte, len(addresses))
	for i, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", text, err)
		}
		p, err := packet(address)
		if err != nil {
			return nil, fmt.Errorf("packet about %s: %w", address, err)
		}
		if all[i], err = p.MarshalBinary(); err != nil {
			return nil, fmt.Errorf("packet about %s: %w", address, err)
		}
	}
	return all, nil
}
