//go:build linux

package main

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/eligibility"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/events"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/speaker"
)

// tellEvent has the addresses looked at when one moved, and tells people what happened.
func (p *process) tellEvent(e speaker.Event) {
	if e.Kind == election.BecameOwner || e.Kind == election.LostOwnership {
		p.addresses.Wake()
	}
	if n, is := p.tidings.Of(e.Event, time.Now()); is {
		if about := p.subject(n); about != nil {
			p.recorder.Event(about, n.Type, n.Reason, n.Message)
		}
	}
}

// subject is the object on which something is told; nil when it is not known, or not any more.
func (p *process) subject(n events.Notice) *corev1.ObjectReference {
	if n.Address.IsValid() {
		return p.serviceOf(n.Address)
	}
	if own := p.publisher.Observed(); own != nil {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: own.Name, UID: own.UID}
	}
	return nil
}

// serviceOf is the Service whose address is announced, nil when there is none.
func (p *process) serviceOf(a netip.Addr) *corev1.ObjectReference {
	services, _ := p.watcher.Services()
	for _, s := range services {
		if address, is := eligibility.Address(s); is && address == a {
			return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
		}
	}
	return nil
}
