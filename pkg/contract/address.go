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
	// AddressSilent: nobody answers.
	AddressSilent AddressState = "Silent"
	// AddressDuplicate: more than one machine answers.
	AddressDuplicate AddressState = "Duplicate"
)

// ReportedAddress is how one address answers, as one agent sees it.
type ReportedAddress struct {
	// State of the address.
	State AddressState `json:"state"`
	// MAC is the hardware address that answered, in lower case; empty when none did.
	MAC string `json:"mac,omitempty"`
	// Held tells that an interface of the reporting node carries the address; MAC is then the node's own, unless the
	// state is AddressDuplicate.
	Held bool `json:"held,omitempty"`
	// Since is when the agent first saw it in that state.
	Since time.Time `json:"since"`
}

// ReportedAddresses is what one agent reports of the addresses that it watches; the value of the
// annotation NodeReportedAddresses.
type ReportedAddresses map[netip.Addr]ReportedAddress

// Encode returns the value of the annotation NodeReportedAddresses.
func (r ReportedAddresses) Encode() (string, error) {
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
