package vip

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// maxReported bounds what one node reports: an entry takes about 110 bytes, so the annotation stays below 4 KiB.
const maxReported = 32

// assessment is a node's view of an address.
type assessment struct {
	subject
	finding check.Finding
	// entry is what there is to report, but for the time since when.
	entry contract.ReportedAddress
	// settled reports that enough samples in a row agree.
	settled bool
	// unpublishedSince is since when the Service's condition has not shown what there is to report; zero while it does.
	unpublishedSince time.Time
	// proven is when there was last evidence that a machine has the address.
	proven time.Time
	// involved reports that the node holds the address or should hold it.
	involved bool
	// atOnce reports that not all other nodes see the same at the same time, so the node need not wait for its turn.
	atOnce bool
	// expired reports that the address has been gone for so long that it need not be reported.
	expired bool
}

// report decides what a node reports of the addresses, given what it reported before. A node that is involved with an
// address reports it at once. The others wait for their turn and report nothing if it has been reported by then; so the
// involved nodes and a few more report a change, however large the cluster is. A report is kept up to date until the
// address has been gone for a while.
func report(before contract.ReportedAddresses, assessments []assessment, node string,
	now time.Time) contract.ReportedAddresses {
	after := contract.ReportedAddresses{}
	for _, o := range assessments {
		old, had := before[o.Address]
		switch {
		case o.expired:
		case !o.settled:
			if had {
				after[o.Address] = old
			}
		case had, o.involved, o.due(node, now):
			entry := o.entry
			entry.Since = now.Truncate(time.Second).UTC()
			if had && old.State == entry.State && old.MAC == entry.MAC && old.Held == entry.Held {
				entry.Since = old.Since
			}
			after[o.Address] = entry
		}
	}
	return MostImportant(after)
}

// due reports whether it is the turn of a node that is not involved to report the address. An answer must be newer than
// the last report of the others: the machine that answered may have just gone.
func (o assessment) due(node string, now time.Time) bool {
	waits := !o.atOnce && now.Sub(o.unpublishedSince) < turn(node, o.Address)
	if o.phase != published || o.unpublishedSince.IsZero() || waits {
		return false
	}
	return o.entry.State == contract.AddressSilent || o.proven.After(o.unpublishedSince)
}

// MostImportant keeps as many entries as may be reported: conflicts, then what this node holds, then the rest.
func MostImportant(all contract.ReportedAddresses) contract.ReportedAddresses {
	if len(all) <= maxReported {
		return all
	}
	weight := func(e contract.ReportedAddress) int {
		switch {
		case e.State == contract.AddressDuplicate:
			return 0
		case e.Held:
			return 1
		case e.State == contract.AddressSilent:
			return 2
		default:
			return 3
		}
	}
	addresses := slices.SortedFunc(maps.Keys(all), func(a, b netip.Addr) int {
		return cmp.Or(weight(all[a])-weight(all[b]), a.Compare(b))
	})
	kept := contract.ReportedAddresses{}
	for _, a := range addresses[:maxReported] {
		kept[a] = all[a]
	}
	return kept
}

// entryOf is what there is to report of an observation. mac is the node's own.
func entryOf(o Observation, mac string) contract.ReportedAddress {
	held := len(o.held()) > 0
	switch {
	case held && len(o.MACs) > 0, len(o.MACs) > 1:
		return contract.ReportedAddress{State: contract.AddressDuplicate, MAC: o.MACs[0], Held: held}
	case held:
		return contract.ReportedAddress{State: contract.AddressAnswered, MAC: mac, Held: true}
	case o.Replied && len(o.MACs) == 1:
		return contract.ReportedAddress{State: contract.AddressAnswered, MAC: o.MACs[0]}
	default:
		return contract.ReportedAddress{State: contract.AddressSilent}
	}
}

// maxCauses and maxMessage bound the message of the condition; a Node object is read by every watcher of the cluster.
const (
	maxCauses  = 5
	maxMessage = 1000 // bytes
)

// Sum combines the findings of all addresses: a failure outweighs what is unknown. The reason is that of the best rank.
func Sum(findings []check.Finding) check.Outcome {
	if len(findings) == 0 {
		return check.Outcome{Status: check.OK, Reason: ReasonNothingAnnounced,
			Message: "no Service has a published address"}
	}
	for _, status := range []check.Status{check.Fail, check.Unknown} {
		bad := slices.DeleteFunc(slices.Clone(findings), func(f check.Finding) bool { return f.Status != status })
		if len(bad) > 0 {
			slices.SortStableFunc(bad, func(a, b check.Finding) int {
				return cmp.Or(rank(a.ID)-rank(b.ID), strings.Compare(a.Cause, b.Cause))
			})
			return check.Outcome{Status: status, Reason: bad[0].Reason, Message: bounded(bad)}
		}
	}
	message := "every published address is answered by one machine"
	if slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Reason == ReasonNoEndpoints }) {
		message += ", except those of Services without endpoints"
	}
	return check.Outcome{Status: check.OK, Reason: ReasonAnswered, Message: message}
}

// rank orders the checks: what this node carries itself goes before what it only receives.
func rank(id check.ID) int {
	return slices.Index([]check.ID{NothingStale, RightInterface, ReturnByNetwork, LeaseAlive, OwnMachine, SingleAnswer,
		RightNode, HolderAnswers, AddressAnswers}, id)
}

// bounded joins causes until the message is long enough; it has no counters, so it changes only when the causes do.
func bounded(bad []check.Finding) string {
	var joined strings.Builder
	for i, f := range bad {
		cause := fmt.Sprintf("%s: %s", f.ID, f.Cause)
		switch {
		case i == 0:
		case i == maxCauses || joined.Len()+len(cause) > maxMessage:
			return joined.String() + "; and more"
		default:
			joined.WriteString("; ")
		}
		joined.WriteString(cause)
	}
	return joined.String()
}

// Reasons of the events on Services. A Warning says what to do, as the finding does.
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

// eventOfCheck has the reasons of the events about findings.
var eventOfCheck = map[check.ID]string{
	AddressAnswers: EventNotAnswered, HolderAnswers: EventNotAnswered, NothingStale: EventStale,
	SingleAnswer: EventDuplicate, RightInterface: EventMisplaced, RightNode: EventMisplaced,
	ReturnByNetwork: EventReturnPath, OwnMachine: EventForeign, LeaseAlive: EventUnguarded,
}

// eventOf is the reason of the event about a finding; empty where there is none to be sent.
func eventOf(f check.Finding) string {
	switch {
	case f.Status == check.OK:
		return EventAnnounced
	case f.Reason == ReasonNotAsked:
		return ""
	default:
		return eventOfCheck[f.ID]
	}
}

// Recorder returns a function that records the finding of a node about the address of a Service as an event of it.
func Recorder(events record.EventRecorder) func(service *corev1.Service, node string, finding check.Finding) {
	return func(service *corev1.Service, node string, f check.Finding) {
		reason := eventOf(f)
		if reason == "" {
			return
		}
		reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace,
			Name: service.Name, UID: service.UID}
		if f.Status == check.OK {
			events.Eventf(reference, corev1.EventTypeNormal, reason, "%s (reported by node %s)",
				f.Title+": "+f.Observed, node)
			return
		}
		events.Event(reference, corev1.EventTypeWarning, reason, text.Message(fmt.Sprintf(
			"%s: %s%s (reported by node %s)", f.ID, f.Cause, advised(f), node)))
	}
}

// advised is what a finding says to do, in one line.
func advised(f check.Finding) string {
	var line strings.Builder
	for _, fix := range f.Fixes {
		for _, step := range append([]string{fix.Note}, fix.Commands...) {
			line.WriteString("; " + step)
		}
	}
	return line.String()
}
