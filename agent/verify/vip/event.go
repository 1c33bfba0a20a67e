package vip

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Reasons of the events on Services.
const (
	// EventAnnounced (Normal): a node announces the address, or does so again.
	EventAnnounced = "AddressAnnounced"
	// EventNotAnswered (Warning): no machine answers, or not the node that holds kube-vip's lease.
	EventNotAnswered = "AddressNotAnswered"
	// EventDuplicate (Warning): two machines answer.
	EventDuplicate = "DuplicateAddress"
	// EventStale (Warning): a node carries the address against the lease.
	EventStale = "StaleAddress"
	// EventForeign (Warning): a machine answers that is not a Node.
	EventForeign = "ForeignAddressOwner"
	// EventMisplaced (Warning): the address is on the wrong node or interface.
	EventMisplaced = "AddressMisplaced"
	// EventUnguarded (Warning): the address answers, but kube-vip's lease is not renewed.
	EventUnguarded = "AddressUnguarded"
	// EventReturnPath (Warning): the node that holds the address would send replies by another network.
	EventReturnPath = "ReturnPathElsewhere"
)

// Transition is a change of the state of the address of a Service.
type Transition struct {
	// Service that has the address.
	Service *corev1.Service
	// Node that reports the change.
	Node string
	// Finding as it is now.
	Finding check.Finding
}

// eventOf is the reason of the event about a finding; empty where there is none to be sent.
func eventOf(f check.Finding) string {
	if f.Status == check.OK {
		return EventAnnounced
	}
	switch f.ID {
	case AddressAnswers, HolderAnswers:
		if f.Reason == ReasonNotAsked {
			return ""
		}
		return EventNotAnswered
	case NothingStale:
		return EventStale
	case SingleAnswer:
		return EventDuplicate
	case RightInterface, RightNode:
		return EventMisplaced
	case ReturnByNetwork:
		return EventReturnPath
	case OwnMachine:
		return EventForeign
	case LeaseAlive:
		return EventUnguarded
	default:
		return ""
	}
}

// Recorder returns a function that records transitions as events on the Service.
func Recorder(events record.EventRecorder) func(Transition) {
	return func(t Transition) {
		reason := eventOf(t.Finding)
		if reason == "" {
			return
		}
		reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: t.Service.Namespace,
			Name: t.Service.Name, UID: t.Service.UID}
		if t.Finding.Status == check.OK {
			events.Eventf(reference, corev1.EventTypeNormal, reason, "%s (reported by node %s)",
				t.Finding.Title+": "+t.Finding.Observed, t.Node)
			return
		}
		events.Eventf(reference, corev1.EventTypeWarning, reason, "%s: %s (reported by node %s)",
			t.Finding.ID, t.Finding.Cause, t.Node)
	}
}
