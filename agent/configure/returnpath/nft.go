//go:build linux

package returnpath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/google/nftables/xt"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxComment is the maximum length of a comment in nft(8), in bytes.
const maxComment = 127

func ownTable() *nftables.Table {
	return &nftables.Table{Name: nftTable, Family: nftables.TableFamilyIPv4}
}

// readRuleset reads the agent's table as ruleset.lines writes it, nil for none, and no other: there may be thousands.
func readRuleset() ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	table, err := conn.ListTableOfFamily(nftTable, nftables.TableFamilyIPv4)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read nftables table ip %s: %w", nftTable, err)
	}
	lines := []string{tableLine(chainsOf(table))}
	for _, name := range chainNames() {
		more, err := readChain(conn, table, name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// chainsOf is how many chains a table has: the kernel reports network byte order, the library reads the machine's.
func chainsOf(table *nftables.Table) int {
	return int(binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, table.Use)))
}

func readChain(conn *nftables.Conn, table *nftables.Table, name string) ([]string, error) {
	c, err := conn.ListChain(table, name)
	switch {
	case err != nil && strings.Contains(err.Error(), unix.ENOENT.Error()): // the library keeps only the text
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read chain %s of nftables table ip %s: %w", name, nftTable, err)
	}
	lines := []string{chain{name: c.Name, kind: c.Type, hook: c.Hooknum, priority: c.Priority}.header()}
	rules, err := conn.GetRules(table, c)
	if err != nil {
		return nil, fmt.Errorf("read the rules of chain %s of nftables table ip %s: %w", name, nftTable, err)
	}
	for _, r := range rules {
		lines = append(lines, line(r.Exprs))
	}
	return lines, nil
}

// setRuleset works in one transaction: no packet sees half of the table.
func (machine) setRuleset(r ruleset) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	// The table is created first so that deleting it always succeeds.
	conn.DelTable(conn.AddTable(ownTable()))
	if !r.empty() {
		table := conn.AddTable(ownTable())
		for _, c := range r.chains {
			added := conn.AddChain(&nftables.Chain{
				Name: c.name, Table: table, Type: c.kind, Hooknum: c.hook, Priority: c.priority,
			})
			for _, s := range c.rules {
				comment := s.text[:min(len(s.text), maxComment)]
				conn.AddRule(&nftables.Rule{
					Table: table, Chain: added, Exprs: s.exprs,
					UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
				})
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("write nftables table ip %s: %w", nftTable, err)
	}
	return nil
}

// Modes of the target CONNMARK (include/uapi/linux/netfilter/xt_connmark.h).
const (
	connmarkSet     = 0
	connmarkRestore = 2
)

// allBits represent an unknown value.
const allBits = ^uint32(0)

// marked are the bits that a rule may set in the mark of packets or connections, without those of earlier rules.
func marked(exprs []expr.Any) uint32 {
	var bits uint32
	registers := map[uint32]uint32{}
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Immediate:
			registers[e.Register] = number(e.Data)
		case *expr.Bitwise:
			registers[e.DestRegister] = registers[e.SourceRegister]&number(e.Mask) | number(e.Xor)
		case *expr.Meta:
			if e.Key == expr.MetaKeyMARK && e.SourceRegister {
				bits |= registers[e.Register]
			} else if !e.SourceRegister {
				registers[e.Register] = 0
			}
		case *expr.Ct:
			// The library does not report whether a connection's mark is read or set; a register of 0 means set.
			if e.Key == expr.CtKeyMARK && e.Register != 0 {
				registers[e.Register] = allBits
			}
		case *expr.Target:
			bits |= markedByTarget(e)
		}
	}
	return bits
}

// markedByTarget reads the targets MARK (struct xt_mark_tginfo2) and CONNMARK (struct xt_connmark_tginfo1) of iptables.
func markedByTarget(t *expr.Target) uint32 {
	info, ok := t.Info.(*xt.Unknown)
	if !ok {
		return 0
	}
	word := func(n int) uint32 {
		if len(*info) < 4*n+4 {
			return 0
		}
		return binary.NativeEndian.Uint32((*info)[4*n:])
	}
	switch {
	case t.Name == "MARK":
		return word(0)
	case t.Name == "CONNMARK" && word(3)&0xff == connmarkSet:
		return word(0)
	case t.Name == "CONNMARK" && word(3)&0xff == connmarkRestore:
		return word(1) & word(2)
	default:
		return 0
	}
}

// number reads a register's value in the byte order of the machine; wider values are no marks.
func number(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(data)
}

// marker searches the rules of nftables, including iptables-nft's, for one that uses the bits, and returns its chain.
// It skips kube-proxy's chains, maybe thousands with known bits, and unreadable ones: the search proves nothing.
func (machine) marker(bits Bits) (string, error) {
	conn, err := nftables.New()
	if err != nil {
		return "", fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return "", fmt.Errorf("list the chains of nftables: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == nftTable && c.Table.Family == nftables.TableFamilyIPv4 ||
			c.Table.Name == "kube-proxy" || strings.HasPrefix(c.Name, "KUBE-") {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			continue
		}
		for _, r := range rules {
			if marked(r.Exprs)&uint32(bits) != 0 {
				return fmt.Sprintf("a rule of the chain %s in the nftables table %s", c.Name, c.Table.Name), nil
			}
		}
	}
	return "", nil
}

// receiveBuffer is the requested size of the buffer, in bytes: kube-proxy replaces hundreds of rules at once.
const receiveBuffer = 1 << 20

// genericHeader is the length of struct nfgenmsg, which starts every message of nftables.
const genericHeader = 4

// nameOfTable is the attribute in all messages that names the table (include/uapi/linux/netfilter/nf_tables.h).
const nameOfTable = 1

// WatchTable calls changed when the agent's table changes or events were lost, until ctx ends, and once when it has
// subscribed: what changed before is not reported. It takes CAP_NET_ADMIN.
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
	changed()
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
