package contract

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// BlockReportName is the ConfigMap in kube-system in which the controller tells people and programs without credentials
// of phoenixNAP what it knows of IP blocks; BlockReportKey is where in it.
const (
	BlockReportName = "phoenixnap-ip-blocks"
	BlockReportKey  = "report.json"
)

// Standings of a block beside those under which orphans are counted (orphan, leftover, empty, unclear, retained).
const (
	// StandingInUse: somebody in the cluster has to do with it.
	StandingInUse = "in-use"
	// StandingBrought: the account's owner brought it for Services to name.
	StandingBrought = "brought"
	// StandingChecking: nobody seems to use it, which a second look has to confirm.
	StandingChecking = "checking"
)

// What a block was bought for.
const (
	// PurposeService: one Service; ReportedBlock.Name is the value of TagService.
	PurposeService = "service"
	// PurposePool: addresses of Services; ReportedBlock.Name is the pool.
	PurposePool = "pool"
	// PurposeNodes: addresses of nodes.
	PurposeNodes = "nodes"
)

// BlockReport is what the controller knows of the IP blocks of the cluster. It is output only: nothing is decided by it.
type BlockReport struct {
	// Looked is when the list of blocks was asked for.
	Looked time.Time `json:"looked"`
	// NetworkID is the public network that Services are served from.
	NetworkID string `json:"networkID"`
	// MaxBlocks is the most blocks that may be bought; 0 for no limit but the network's.
	MaxBlocks int `json:"maxBlocks,omitempty"`
	// Collecting tells that orphans are given back without a person.
	Collecting bool `json:"collecting,omitempty"`
	// Blocks ordered by ID.
	Blocks []ReportedBlock `json:"blocks"`
}

// ReportedBlock is one block that was bought for the cluster or brought to it.
type ReportedBlock struct {
	// ID is the API's ID of the block.
	ID string `json:"id"`
	// CIDR is the block; the zero Prefix when the API does not say.
	CIDR netip.Prefix `json:"cidr"`
	// Location is the 3-letter code of the site.
	Location string `json:"location"`
	// Status is the word of the API.
	Status string `json:"status"`
	// AssignedTo is the ID of the network or server that it is assigned to; empty when none.
	AssignedTo string `json:"assignedTo,omitempty"`
	// Created is when it was bought; nil when the API does not say.
	Created *time.Time `json:"created,omitempty"`
	// Purpose is PurposeService, PurposePool or PurposeNodes; empty when no tag says.
	Purpose string `json:"purpose,omitempty"`
	// Name of what it was bought for, see the purposes.
	Name string `json:"name,omitempty"`
	// Standing says whether somebody uses it.
	Standing string `json:"standing"`
	// Since is when it was first seen unused; nil while it is used.
	Since *time.Time `json:"since,omitempty"`
}

// Encode returns the value of BlockReportKey.
func (r BlockReport) Encode() (string, error) {
	if r.Blocks == nil {
		r.Blocks = []ReportedBlock{}
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the report of IP blocks: %w", err)
	}
	return string(raw), nil
}

// ParseBlockReport reads what Encode wrote. Fields of a later version are left out.
func ParseBlockReport(raw string) (BlockReport, error) {
	var r BlockReport
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return BlockReport{}, fmt.Errorf("report of IP blocks: %w", err)
	}
	return r, nil
}
