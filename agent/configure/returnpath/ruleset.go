//go:build linux

package returnpath

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// nftTable is the name of the agent's own nftables table, in the family ip. Nothing in it belongs to another program.
const nftTable = "phoenixnap"

// Offsets of the addresses in an IPv4 header (RFC 791), and their length.
const (
	sourceOffset      = 12
	destinationOffset = 16
	addressLength     = 4
)

// inner are the networks of private addresses. No gateway of a public network leads to them: requests from there, such
// as from a pod of another node, are answered by the main table.
var inner = contract.PrivateNetworks()

// ruleset is the content of the agent's nftables table. The zero value stands for no table.
type ruleset struct {
	chains []chain
}

// chain is a chain with its rules.
type chain struct {
	name string
	// kind, hook and priority are set for a chain that the kernel calls; empty for one that rules jump to.
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    []statement
}

// statement is a rule of a chain.
type statement struct {
	// text is the rule in the syntax of nft(8); the kernel keeps it as a comment.
	text  string
	exprs []expr.Any
}

// chainNames are the chains of the agent's table, in their order.
func chainNames() []string { return []string{"arrived", "replied", "prerouting", "output"} }

func (r ruleset) empty() bool { return len(r.chains) == 0 }

// lines writes the ruleset so that it can be compared with what the kernel has; nil for no table.
func (r ruleset) lines() []string {
	if r.empty() {
		return nil
	}
	lines := []string{tableLine(len(r.chains))}
	for _, c := range r.chains {
		lines = append(lines, c.header())
		for _, s := range c.rules {
			lines = append(lines, line(s.exprs))
		}
	}
	return lines
}

// tableLine includes how many chains the table has, so that an additional one is noticed.
func tableLine(chains int) string { return fmt.Sprintf("table ip %s with %d chains", nftTable, chains) }

func (c chain) header() string {
	if c.hook == nil || c.priority == nil {
		return "chain " + c.name
	}
	return fmt.Sprintf("chain %s type %s hook %d priority %d", c.name, c.kind, *c.hook, *c.priority)
}

// line formats expressions as the kernel reports them: without the source register that sets a value of a connection.
func line(exprs []expr.Any) string {
	parts := make([]string, len(exprs))
	for i, e := range exprs {
		if ct, ok := e.(*expr.Ct); ok && ct.SourceRegister {
			e = &expr.Ct{Key: ct.Key}
		}
		parts[i] = fmt.Sprintf("%T%+v", e, e)
	}
	return strings.Join(parts, " ")
}

// marking is the ruleset that marks connections that arrive by the VLAN interfaces, and their replies. The address
// that the client asked for chooses the value; the connection keeps it through every translation.
func marking(vlans []link, gateways []gateway, bits Bits) *ruleset {
	gateways = slices.DeleteFunc(slices.Clone(gateways), func(g gateway) bool { return g.mark == 0 })
	reply := statement{fmt.Sprintf("ct direction reply ct mark and %s != 0 jump replied", bits), slices.Concat(
		[]expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}},
		},
		connection(bits, expr.CmpOpNeq, 0), jump("replied"))}
	var arriving []statement
	for _, l := range vlans {
		arriving = append(arriving, statement{fmt.Sprintf("iifname %q ct state new jump arrived", l.name),
			slices.Concat(newOn(l.name), jump("arrived"))})
	}
	// In the order of chainNames.
	return &ruleset{chains: []chain{
		{name: "arrived", rules: arrived(gateways, bits)},
		{name: "replied", rules: replied(gateways, bits)},
		// Before the translation of addresses (-100), so that the destination is still what the client asked for.
		{name: "prerouting", kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting,
			priority: nftables.ChainPriorityRef(*nftables.ChainPriorityMangle - 10),
			rules:    append(arriving, reply)},
		// Type route: the kernel looks up the route of a changed packet again.
		{name: "output", kind: nftables.ChainTypeRoute, hook: nftables.ChainHookOutput,
			priority: nftables.ChainPriorityMangle, rules: []statement{reply}},
	}}
}

// arrived marks connections to addresses of the blocks.
func arrived(gateways []gateway, bits Bits) []statement {
	var rules []statement
	for _, p := range inner {
		rules = append(rules, statement{fmt.Sprintf("ip saddr %s return", p), slices.Concat(
			headerIn(sourceOffset, p), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}})})
	}
	for _, g := range gateways {
		value := g.mark
		rules = append(rules, statement{
			fmt.Sprintf("ip daddr %s ct mark set ct mark and %#x xor %#x", g.block, ^uint32(bits), value),
			slices.Concat(headerIn(destinationOffset, g.block), []expr.Any{
				&expr.Ct{Key: expr.CtKeyMARK, Register: 1},
				bitwise(^uint32(bits), value),
				&expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true},
			})})
	}
	return rules
}

// replied gives packets the value of their connection, and keeps all other bits of their mark.
func replied(gateways []gateway, bits Bits) []statement {
	var rules []statement
	done := map[uint32]bool{}
	for _, g := range gateways {
		value := g.mark
		if done[value] {
			continue
		}
		done[value] = true
		rules = append(rules, statement{
			fmt.Sprintf("ct mark and %s == %#x meta mark set meta mark and %#x xor %#x", bits, value, ^uint32(bits),
				value),
			slices.Concat(connection(bits, expr.CmpOpEq, value), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
				bitwise(^uint32(bits), value),
				&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
			})})
	}
	return rules
}

// connection compares the agent's bits of the connection mark.
func connection(bits Bits, op expr.CmpOp, value uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: 1}, bitwise(uint32(bits), 0),
		&expr.Cmp{Op: op, Register: 1, Data: word(value)},
	}
}

// newOn matches new connections that arrive by an interface.
func newOn(name string) []expr.Any {
	var padded [unix.IFNAMSIZ]byte
	copy(padded[:], name)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: padded[:]},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, bitwise(expr.CtStateBitNEW, 0),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: word(0)},
	}
}

// headerIn compares an address of the header with a network.
func headerIn(offset uint32, network netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressLength},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: addressLength,
			Mask: net.CIDRMask(network.Bits(), 8*addressLength), Xor: make([]byte, addressLength)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: network.Addr().AsSlice()},
	}
}

// bitwise computes register and mask xor value, in the byte order of the machine.
func bitwise(mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
		Mask: word(mask), Xor: word(xor)}
}

func word(value uint32) []byte { return binary.NativeEndian.AppendUint32(nil, value) }

func jump(name string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: name}}
}
