//go:build linux

package speaker

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// record logs and counts an event, and reports it to the configured recorder.
func (s *session) record(ctx context.Context, e election.Event) {
	log := klog.FromContext(ctx)
	var number uint64
	s.note(func(state *State) {
		if state.View != nil {
			number = state.View.Number
		}
		switch e.Kind {
		case election.BecameOwner:
			state.BecameOwner++
		case election.LostOwnership:
			state.LostOwnership++
		case election.MovesOften:
			state.Repeated++
		case election.HeartbeatLate:
			state.Late++
		default:
		}
	})
	switch e.Kind {
	case election.BecameOwner:
		log.Info("Answering for an address", "address", e.Address, "predecessor", e.Node, "view", number)
	case election.LostOwnership:
		log.Info("Stopped answering for an address", "address", e.Address, "successor", e.Node, "view", number)
	case election.LeaseLost:
		log.Info("Stopped answering: no majority of the nodes acknowledges this one", "view", number)
	case election.MovesOften:
		log.Info("An address moves often", "address", e.Address, "predecessor", e.Node, "moves", e.Number)
	case election.ChangesOften:
		log.Info("The view of the announcers changes often, so this node waits before it changes it again. Look at "+
			"the events of the Nodes, and for what else writes it", "view", number, "network", s.network,
			"configMap", metav1.NamespaceSystem+"/"+contract.AnnouncerView)
	case election.HeartbeatLate:
		log.V(2).Info("A heartbeat was sent late: the process did not run")
	case election.OtherCluster:
		log.Info("Dropping heartbeats of another cluster, or for another network, on this VLAN: it has the same key. "+
			"Give each cluster its own", "node", e.Node, "network", s.network,
			"secret", metav1.NamespaceSystem+"/"+contract.AnnouncerSecret)
	case election.DuplicateMember:
		log.Info("Answering for no address: a later agent uses the name of this Node")
	case election.MemberFailed, election.MemberOff, election.MemberLeft, election.MemberJoined, election.ViewRebuilt:
		log.Info("The view of the announcers changed", "event", e.Kind, "node", e.Node, "view", number)
	}
	s.Record(e)
}
