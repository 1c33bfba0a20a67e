package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Tags on an IP block. Tag names and values may contain letters, digits, "-" and "_", at most 100 characters
// (phoenixNAP Tag Manager API, POST /tags).
const (
	// TagUsage is TagUsageAuto on a block that this provider bought.
	TagUsage = "usage"
	// TagUsageAuto is the value of TagUsage.
	TagUsageAuto = "cloud-provider-phoenixnap-auto"
	// TagCluster is the UID of the namespace kube-system: the cluster that the block belongs to. A block with that of
	// another cluster is not used.
	TagCluster = "cluster"
	// TagService is the Service that a dedicated block belongs to: namespace and name joined by "_", shortened with a
	// hash when longer than 100 characters, see ServiceTag.
	TagService = "service"
	// TagPool is the name of the pool that a shared block belongs to, instead of TagService.
	TagPool = "pool"
	// TagNodes is the UID of the namespace kube-system on the block from which nodes get their own addresses, instead
	// of TagService.
	TagNodes = "nodes"
	// TagRetain is TagTrue on a dedicated block that outlives its Service.
	TagRetain = "retain"
	// TagDelete is TagTrue on a block that phoenixnap/k8s-cloud-provider-bmc v1 was about to delete; it is
	// read, never written.
	TagDelete = "delete"
	// TagTrue is the value of TagRetain and TagDelete.
	TagTrue = "true"
	// TagServiceNamespace is what phoenixnap/k8s-cloud-provider-bmc v1 wrote, with TagServiceName, instead of
	// TagService; such blocks are adopted. It is read, never written.
	TagServiceNamespace = "serviceNamespace"
	// TagServiceName goes with TagServiceNamespace.
	TagServiceName = "serviceName"
)

// PoolDefault is the name of the pool of shared blocks.
const PoolDefault = "default"

// maxTagValue is the longest tag value that the API stores.
const maxTagValue = 100

// ServiceTag returns the value of TagService: namespace and name joined by "_", which can occur in neither.
// A longer ID is shortened to 83 characters and 16 hexadecimal digits of its SHA-256, again joined by "_".
func ServiceTag(namespace, name string) string {
	id := namespace + "_" + name
	if len(id) <= maxTagValue {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	digest := hex.EncodeToString(sum[:8])
	return id[:maxTagValue-1-len(digest)] + "_" + digest
}

// BlockReportName is the ConfigMap in kube-system in which the controller reports the IP blocks to users and programs
// without phoenixNAP credentials; BlockReportKey is its field.
const (
	BlockReportName = "phoenixnap-ip-blocks"
	BlockReportKey  = "report.json"
)

// AccountUnreadable is the reason of the Warning on the Namespace kube-system that says why the controller cannot
// read the account. One that is newer than the report of IP blocks applies still.
const AccountUnreadable = "AccountUnreadable"

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

// BlockReport is the state of the cluster's IP blocks. It is output: the controller reads nothing of it.
type BlockReport struct {
	Looked     time.Time `json:"looked"`               // when the list of blocks was requested
	NetworkID  string    `json:"networkID"`            // the public network of the Services
	MaxBlocks  int       `json:"maxBlocks,omitempty"`  // how many may be bought; 0: no limit but the network's
	Collecting bool      `json:"collecting,omitempty"` // the controller deletes orphans
	// MaxRetained is how many blocks may outlive their Services.
	MaxRetained int             `json:"maxRetained,omitempty"`
	Blocks      []ReportedBlock `json:"blocks"` // ordered by ID
}

// ReportedBlock is one block that was bought for the cluster or brought to it.
type ReportedBlock struct {
	ID         string       `json:"id"`                   // the API's ID of the block
	CIDR       netip.Prefix `json:"cidr"`                 // the block; zero when not reported by the API
	Location   string       `json:"location"`             // the 3-letter code of the location
	Status     string       `json:"status"`               // the status in the API
	AssignedTo string       `json:"assignedTo,omitempty"` // the ID of a network or server; empty when unassigned
	Created    *time.Time   `json:"created,omitempty"`    // when it was bought; nil when not reported by the API
	Purpose    string       `json:"purpose,omitempty"`    // one of the purposes; empty when no tag contains it
	Name       string       `json:"name,omitempty"`       // the name of what it was bought for, see the purposes
	Standing   string       `json:"standing"`             // how the block is used
	Since      *time.Time   `json:"since,omitempty"`      // when it was first found unused; nil while used
	// Retain: it outlives its Service, or did.
	Retain bool `json:"retain,omitempty"`
	// Unusable: no address of it can be given, for it is divided, or its status is not known.
	Unusable bool `json:"unusable,omitempty"`
	// Held: it is one of too many orphans, and is not deleted until a person confirms it.
	Held bool `json:"held,omitempty"`
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
