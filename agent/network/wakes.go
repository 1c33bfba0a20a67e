//go:build linux

package network

import (
	"context"
	"sync"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// wakes wake the loops of a Runtime. They exist before the parts that run these loops: parts wake each other.
type wakes struct {
	samples, addresses     loop.Wake
	localHealth, announcer loop.Wake
	vlan, returnPath       loop.Wake
}

// newWakes returns wakes; that of the return path is the Node's.
func newWakes(returnPath loop.Wake) wakes {
	return wakes{
		samples: loop.NewWake(), addresses: loop.NewWake(), localHealth: loop.NewWake(), announcer: loop.NewWake(),
		vlan: loop.NewWake(), returnPath: returnPath,
	}
}

// announce says that what this node announces may have to change.
func (w wakes) announce() {
	w.localHealth.Signal()
	w.announcer.Signal()
}

// manage says that what is managed may have to change.
func (w wakes) manage() {
	w.vlan.Signal()
	w.returnPath.Signal()
}

// onServices follows a change of Services, or of who has which address.
func (w wakes) onServices() {
	w.announce()
	w.addresses.Signal()
}

// onExpectation follows a change of what to expect of the node.
func (w wakes) onExpectation() {
	w.samples.Signal()
	w.manage()
	w.announce()
}

// onSample returns what follows each sample. Until the first one, what is managed waits to know which machine this is.
func (w wakes) onSample() func() {
	first := sync.OnceFunc(w.manage)
	return func() {
		w.addresses.Signal()
		w.announce()
		first()
	}
}

// wakeOnTurn wakes the announcer when it is the agent's turn.
type wakeOnTurn struct {
	turn *standby.Turn
	wake loop.Wake
}

// Run wakes once, when the turn has come.
func (b wakeOnTurn) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-b.turn.Begun():
		b.wake.Signal()
	}
	return nil
}
