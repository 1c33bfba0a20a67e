//go:build linux

package main

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/speaker"
)

// teller records events about the addresses that the agents announce.
type teller struct {
	*shared
	tidings *speaker.Recorder
}

func newTeller(s *shared) *teller { return &teller{shared: s, tidings: speaker.NewRecorder(s.name)} }

// tell checks the addresses when one moved, and records an event.
func (t *teller) tell(e election.Event) {
	if e.Kind == election.BecameOwner || e.Kind == election.LostOwnership {
		t.wakes.addresses.Signal()
	}
	if n, is := t.tidings.Of(e, time.Now()); is {
		if about := t.subject(n); about != nil {
			t.recorder.Event(about, n.Type, n.Reason, n.Message)
		}
	}
}

// subject is the object of an event; nil when it is not known, or not any more.
func (t *teller) subject(n speaker.Notice) *corev1.ObjectReference {
	if n.Address.IsValid() {
		return t.serviceOf(n.Address)
	}
	if own := t.publisher.Observed(); own != nil {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: own.Name, UID: own.UID}
	}
	return nil
}

// serviceOf is the Service whose address is announced, nil when there is none.
func (t *teller) serviceOf(a netip.Addr) *corev1.ObjectReference {
	services, _ := t.services.Services()
	for _, s := range services {
		if address, is := speaker.Address(s); is && address == a {
			return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name,
				UID: s.UID}
		}
	}
	return nil
}
