package contract

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// BlockReportName is the ConfigMap in kube-system in which the controller reports the IP blocks to users and programs
// without phoenixNAP credentials; BlockReportKey is its field.
const (
	BlockReportName = "phoenixnap-ip-blocks"
	BlockReportKey  = "report.json"
)

// Standings of a block in addition to those under which orphans are counted (orphan, leftover, empty, unclear,
// retained).
const (
	// StandingInUse: an object in the cluster uses it.
	StandingInUse = "in-use"
	// StandingBrought: the account's owner provided it for Services to request.
	StandingBrought = "brought"
	// StandingChecking: it seems to be unused, which a second read must confirm.
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

// BlockReport is the state of the cluster's IP blocks. It is output only: the controller never reads it.
type BlockReport struct {
	// Looked is when the list of blocks was requested.
	Looked time.Time `json:"looked"`
	// NetworkID is the public network of the Services.
	NetworkID string `json:"networkID"`
	// MaxBlocks is the maximum number of blocks to buy; 0 for no limit except the network's.
	MaxBlocks int `json:"maxBlocks,omitempty"`
	// Collecting reports that the controller deletes orphans.
	Collecting bool `json:"collecting,omitempty"`
	// Blocks ordered by ID.
	Blocks []ReportedBlock `json:"blocks"`
}

// ReportedBlock is one block that was bought for the cluster or brought to it.
type ReportedBlock struct {
	// ID is the API's ID of the block.
	ID string `json:"id"`
	// CIDR is the block; the zero Prefix when the API does not report it.
	CIDR netip.Prefix `json:"cidr"`
	// Location is the 3-letter code of the location.
	Location string `json:"location"`
	// Status is the status in the API.
	Status string `json:"status"`
	// AssignedTo is the ID of the network or server that it is assigned to; empty when unassigned.
	AssignedTo string `json:"assignedTo,omitempty"`
	// Created is when it was bought; nil when the API does not report it.
	Created *time.Time `json:"created,omitempty"`
	// Purpose is PurposeService, PurposePool or PurposeNodes; empty when no tag contains it.
	Purpose string `json:"purpose,omitempty"`
	// Name is the name of what it was bought for, see the purposes.
	Name string `json:"name,omitempty"`
	// Standing is how the block is used.
	Standing string `json:"standing"`
	// Since is when it was first found unused; nil while it is used.
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

// ParseBlockReport parses the result of Encode. It ignores fields of a later version.
func ParseBlockReport(raw string) (BlockReport, error) {
	var r BlockReport
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return BlockReport{}, fmt.Errorf("report of IP blocks: %w", err)
	}
	return r, nil
}
