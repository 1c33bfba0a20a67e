//go:build linux

package ebpf

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Offsets in a frame with an IPv4 header without options, and TCP.
const (
	etherType   = 12
	protocol    = 23
	ipChecksum  = 24
	sourceIP    = 26
	targetIP    = 30
	sourcePort  = 34
	targetPort  = 36
	tcpChecksum = 50
)

// Results of a program (linux/pkt_cls.h), and flags of helpers (linux/bpf.h).
const (
	accept     = 0 // TC_ACT_OK
	pseudo     = 0x10
	lookupSize = 64 // struct bpf_fib_lookup
)

// packet is the register that keeps the packet, since helpers overwrite those of their arguments.
const packet = asm.R6

// translation rewrites an address and a port: those of the target, or of the source.
type translation struct {
	address, port int // offsets
	from, to      netip.AddrPort
}

// network4 is an address as it stands in a packet, read as a number of this machine.
func network4(a netip.Addr) int32 {
	raw := a.As4()
	return int32(binary.NativeEndian.Uint32(raw[:]))
}

func network2(port uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port)))
}

// load copies a part of the packet to the stack, and from there into R0.
func load(offset int, size asm.Size) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, packet), asm.Mov.Imm(asm.R2, int32(offset)),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, int32(size.Sizeof())),
		asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "accept"),
		asm.LoadMem(asm.R0, asm.RFP, -8, size),
	}
}

// expect accepts the packet as it is unless a part of it has a value.
func expect(offset int, size asm.Size, value int32) asm.Instructions {
	// Values of four bytes are compared as 32 bits: the instruction extends the sign of its constant.
	return append(load(offset, size), asm.JNE.Imm32(asm.R0, value, "accept"))
}

// store writes a value into the packet.
func store(offset int, size asm.Size, value int32) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -8, int64(value), size),
		asm.Mov.Reg(asm.R1, packet), asm.Mov.Imm(asm.R2, int32(offset)),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, int32(size.Sizeof())),
		asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call(),
	}
}

func checksum(helper asm.BuiltinFunc, offset int, from, to, flags int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, packet), asm.Mov.Imm(asm.R2, int32(offset)),
		asm.Mov.Imm32(asm.R3, from), asm.Mov.Imm32(asm.R4, to), asm.Mov.Imm(asm.R5, flags), helper.Call(),
	}
}

// instructions rewrite TCP packets that match; all others are accepted as they are.
func (tr translation) instructions() asm.Instructions {
	from := network4(tr.from.Addr())
	to := network4(tr.to.Addr())
	fromPort := network2(tr.from.Port())
	toPort := network2(tr.to.Port())
	var all asm.Instructions
	for _, part := range []asm.Instructions{
		{asm.Mov.Reg(packet, asm.R1)},
		expect(etherType, asm.Half, network2(unix.ETH_P_IP)),
		expect(protocol, asm.Byte, unix.IPPROTO_TCP),
		expect(tr.address, asm.Word, from),
		expect(tr.port, asm.Half, fromPort),
		checksum(asm.FnL4CsumReplace, tcpChecksum, from, to, pseudo|4),
		checksum(asm.FnL4CsumReplace, tcpChecksum, fromPort, toPort, 2),
		checksum(asm.FnL3CsumReplace, ipChecksum, from, to, 4),
		store(tr.address, asm.Word, to),
		store(tr.port, asm.Half, toPort),
	} {
		all = append(all, part...)
	}
	return all
}

// redirect sends the packet out by a link, past netfilter and routing.
func redirect(link int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(link)), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0),
		asm.FnRedirectNeigh.Call(), asm.Return(),
	}
}

// routeAgain looks the route up with the addresses that the packet has now, by the kernel's rules and tables, and sends
// it out by another link than this one if that is the result.
func routeAgain(link int, source, target netip.Addr) asm.Instructions {
	all := asm.Instructions{asm.Mov.Imm(asm.R0, 0)}
	for offset := int16(-lookupSize); offset < 0; offset += 8 {
		all = append(all, asm.StoreMem(asm.RFP, offset, asm.R0, asm.DWord))
	}
	return append(all,
		asm.StoreImm(asm.RFP, -lookupSize, unix.AF_INET, asm.Byte),
		asm.StoreImm(asm.RFP, -lookupSize+1, unix.IPPROTO_TCP, asm.Byte),
		asm.StoreImm(asm.RFP, -lookupSize+8, int64(link), asm.Word),
		asm.StoreImm(asm.RFP, -lookupSize+16, int64(network4(source)), asm.Word),
		asm.StoreImm(asm.RFP, -lookupSize+32, int64(network4(target)), asm.Word),
		asm.Mov.Reg(asm.R1, packet), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -lookupSize),
		asm.Mov.Imm(asm.R3, lookupSize), asm.Mov.Imm(asm.R4, 0), asm.FnFibLookup.Call(),
		asm.JEq.Imm(asm.R0, 0, "found"),  // BPF_FIB_LKUP_RET_SUCCESS
		asm.JNE.Imm(asm.R0, 7, "accept"), // BPF_FIB_LKUP_RET_NO_NEIGH: the link is known all the same
		asm.LoadMem(asm.R1, asm.RFP, -lookupSize+8, asm.Word).WithSymbol("found"),
		asm.JEq.Imm(asm.R1, int32(link), "accept"),
		asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0),
		asm.FnRedirectNeigh.Call(), asm.Return(),
	)
}

// mark sets the packet's mark (offset 8 of struct __sk_buff).
func mark(value uint32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(packet, asm.R1), asm.Mov.Imm32(asm.R2, int32(value)), asm.StoreMem(packet, 8, asm.R2, asm.Word),
	}
}

// attach loads a program and attaches it by a tc filter, as Cilium does where the kernel has no tcx.
func (n *node) attach(link, name string, hook uint32, parts ...asm.Instructions) {
	n.t.Helper()
	var all asm.Instructions
	for _, part := range parts {
		all = append(all, part...)
	}
	all = append(all, asm.Mov.Imm(asm.R0, accept).WithSymbol("accept"), asm.Return())
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: all, License: "GPL"})
	n.must("load the program "+name, err)
	defer func() { _ = program.Close() }() // the filter holds it
	index := n.link(link).Attrs().Index
	n.must("add clsact to "+link, ignoreExisting(netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT}})))
	n.must("attach "+name, netlink.FilterAdd(&netlink.BpfFilter{Fd: program.FD(), Name: name, DirectAction: true,
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: hook, Handle: 1, Priority: 1,
			Protocol: unix.ETH_P_ALL}}))
}

// detach removes all programs of the links.
func (n *node) detach(links ...string) {
	n.t.Helper()
	for _, name := range links {
		qdiscs, err := netlink.QdiscList(n.link(name))
		n.must("list qdiscs", err)
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				n.must("delete clsact", netlink.QdiscDel(q))
			}
		}
	}
}

func ignoreExisting(err error) error {
	if err == unix.EEXIST { //nolint:errorlint // netlink returns the number itself
		return nil
	}
	return err
}
