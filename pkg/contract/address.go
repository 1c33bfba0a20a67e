package contract

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// AddressState is how an address of a Service answers on the wire.
type AddressState string

// The states that agents report.
const (
	// AddressAnswered: exactly one machine answers.
	AddressAnswered AddressState = "Answered"
	// AddressSilent: no machine answers.
	AddressSilent AddressState = "Silent"
	// AddressDuplicate: more than one machine answers.
	AddressDuplicate AddressState = "Duplicate"
)

// Reasons of the Service condition ServiceConditionAnnounced that no agent reports as a state, because they follow from
// the reports of several agents.
const (
	// AnnouncedForeign: the machine that answers is not a Node of the cluster.
	AnnouncedForeign = "ForeignOwner"
	// AnnouncedHolderSilent: a Node holds the address, but the others do not receive its answers.
	AnnouncedHolderSilent = "HolderSilent"
)

// ReportedAddress is the state of one address, as one agent reports it.
type ReportedAddress struct {
	// State of the address.
	State AddressState `json:"state"`
	// MAC is the MAC address that answered, in lower case; empty when none did.
	MAC string `json:"mac,omitempty"`
	// Held reports that an interface of the reporting node has the address; MAC is then the node's own, unless the
	// state is AddressDuplicate.
	Held bool `json:"held,omitempty"`
	// Since is when the agent first observed that state.
	Since time.Time `json:"since"`
}

// ReportedAddresses is one agent's report on the addresses that it watches; the value of the annotation
// NodeReportedAddresses.
type ReportedAddresses map[netip.Addr]ReportedAddress

// Encode returns the value of the annotation NodeReportedAddresses; empty when there is nothing to report.
func (r ReportedAddresses) Encode() (string, error) {
	if len(r) == 0 {
		return "", nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", NodeReportedAddresses, err)
	}
	return string(raw), nil
}

// ParseReportedAddresses reads the annotation NodeReportedAddresses; nil without an error when it is empty.
func ParseReportedAddresses(raw string) (ReportedAddresses, error) {
	if raw == "" {
		return nil, nil
	}
	var reported ReportedAddresses
	if err := json.Unmarshal([]byte(raw), &reported); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", NodeReportedAddresses, err)
	}
	return reported, nil
}
