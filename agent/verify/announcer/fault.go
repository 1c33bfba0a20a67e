package announcer

import (
	"fmt"
	"net/netip"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// FaultKind is a way in which the announcement of an address goes wrong that is repaired where the announcer runs.
type FaultKind int

const (
	// Silent means that no machine answers, and it is not known which should.
	Silent FaultKind = iota
	// OwnerSilent means that no machine answers, and a node was elected.
	OwnerSilent
	// Stale means that this node carries an address, or answers for it, that it should not.
	Stale
	// Stray means that a machine answers for an address that no Service has.
	Stray
	// Duplicate means that several machines answer.
	Duplicate
	// WrongInterface means that this node carries the address on an interface other than the VLAN interface.
	WrongInterface
	// Unguarded means that a machine answers, but no node is elected that would be followed by another.
	Unguarded
)

// Fault is what is wrong with an address, as one node sees it.
type Fault struct {
	Kind    FaultKind
	Address netip.Addr
	// Interface is the name of the VLAN interface.
	Interface string
	// Carried are the interfaces of this node that carry the address.
	Carried []string
	// Here reports that this node should answer.
	Here     bool
	Election Election
}

// Remove is the command that deletes the address from an interface.
func (f Fault) Remove(interfaceName string) string {
	return fmt.Sprintf("ip address delete %s/32 dev %s", f.Address, interfaceName)
}

// RemoveCarried is advice to delete the address from each interface of this node that carries it.
func (f Fault) RemoveCarried(note string) []check.Fix {
	var fixes []check.Fix
	for _, name := range f.Carried {
		fixes = append(fixes, Advice(note, f.Remove(name))...)
	}
	return fixes
}

// Advice is a fix that is the same whatever configures the network.
func Advice(note string, commands ...string) []check.Fix {
	return []check.Fix{{Tool: check.AnyTool, Commands: commands, Note: note}}
}
