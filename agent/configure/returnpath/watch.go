//go:build linux

package returnpath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// receiveBuffer is the requested size of the event socket's buffer, in bytes: kube-proxy replaces hundreds of rules
// at once.
const receiveBuffer = 1 << 20

// genericHeader is the length of struct nfgenmsg, which starts every message of nftables.
const genericHeader = 4

// nameOfTable is the attribute that names the table in messages about tables, chains, rules and sets alike
// (include/uapi/linux/netfilter/nf_tables.h).
const nameOfTable = 1

// WatchTable calls changed whenever the agent's nftables table changes, and whenever events were lost, until ctx
// ends. It needs CAP_NET_ADMIN.
func WatchTable(ctx context.Context, changed func()) error {
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	if err := socket.SetReceiveBufferSize(receiveBuffer, true); err != nil {
		return fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	for {
		messages, _, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed()
			continue
		case err != nil:
			return fmt.Errorf("receive changes of nftables: %w", err)
		default:
		}
		for _, m := range messages {
			if concerns(m.Header.Type, m.Data) {
				changed()
				break
			}
		}
	}
}

// concerns reports whether a message of nftables is about the agent's table.
func concerns(kind uint16, data []byte) bool {
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(data) < genericHeader || data[0] != unix.NFPROTO_IPV4 {
		return false
	}
	for rest := data[genericHeader:]; len(rest) >= unix.SizeofRtAttr; {
		length := int(binary.NativeEndian.Uint16(rest))
		if length < unix.SizeofRtAttr || length > len(rest) {
			return false
		}
		if kind := binary.NativeEndian.Uint16(rest[2:]); kind&nl.NLA_TYPE_MASK == nameOfTable {
			return strings.TrimRight(string(rest[unix.SizeofRtAttr:length]), "\x00") == nftTable
		}
		rest = rest[min(aligned(length), len(rest)):]
	}
	return false
}

// aligned is the distance to the next attribute (NLMSG_ALIGN of netlink(3)).
func aligned(length int) int { return (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }
