//go:build linux

package returnpath

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The tests of this file fail when a newer github.com/google/nftables is without a fault that nft.go works around.

// kernelThatAnswers is a connection to a kernel that answers every request with one message, or with an error.
func kernelThatAnswers(t *testing.T, kind int, errno error, attributes ...netlink.Attribute) *nftables.Conn {
	t.Helper()
	raw, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		t.Fatal(err)
	}
	reply := netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind)},
		Data:   append([]byte{unix.NFPROTO_IPV4, 0, 0, 0}, raw...),
	}
	conn, err := nftables.New(nftables.WithTestDial(func(requests []netlink.Message) ([]netlink.Message, error) {
		if errno != nil {
			return nil, errno
		}
		reply.Header.Sequence = requests[0].Header.Sequence
		return []netlink.Message{reply}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestUpgradeReadsTheNumberOfChainsInNetworkByteOrder(t *testing.T) {
	conn := kernelThatAnswers(t, unix.NFT_MSG_NEWTABLE, nil,
		netlink.Attribute{Type: unix.NFTA_TABLE_NAME, Data: []byte(nftTable + "\x00")},
		netlink.Attribute{Type: unix.NFTA_TABLE_USE, Data: binary.BigEndian.AppendUint32(nil, 3)})
	table, err := conn.ListTableOfFamily(nftTable, nftables.TableFamilyIPv4)
	if err != nil {
		t.Fatal(err)
	}
	if chainsOf(table) != 3 {
		t.Errorf("a table with 3 chains is read as one with %d. If the library reads %d now, replace chainsOf in "+
			"nft.go by int(table.Use)", chainsOf(table), table.Use)
	}
}

func TestUpgradeKeepsTheErrorOfAMissingChain(t *testing.T) {
	conn := kernelThatAnswers(t, 0, unix.ENOENT)
	table := &nftables.Table{Name: nftTable, Family: nftables.TableFamilyIPv4}
	_, err := conn.ListChain(table, "output")
	if err == nil {
		t.Fatal("a missing chain is listed")
	}
	if errors.Is(err, unix.ENOENT) {
		t.Errorf("the library wraps the error now (%v): readChain in nft.go may use errors.Is, not the text", err)
	}
	if !strings.Contains(err.Error(), unix.ENOENT.Error()) {
		t.Errorf("the error has another text now: %v. readChain in nft.go has to recognise it", err)
	}
	if lines, err := readChain(conn, table, "output"); err != nil || lines != nil {
		t.Errorf("readChain() = %q, %v for a missing chain, want nothing", lines, err)
	}
}

func TestUpgradeReadsWhetherAConnectionMarkIsSet(t *testing.T) {
	set := expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true}
	raw, err := expr.MarshalExprData(unix.NFPROTO_IPV4, &set)
	if err != nil {
		t.Fatal(err)
	}
	var read expr.Ct
	if err := expr.Unmarshal(unix.NFPROTO_IPV4, raw, &read); err != nil {
		t.Fatal(err)
	}
	if read.SourceRegister || read.Register != 0 {
		t.Errorf("the library reads the register that a connection's mark is set from (%+v): marked in nft.go may "+
			"look at SourceRegister, not at the register 0", read)
	}
}
