package contract

import (
	"crypto/sha256"
	"encoding/hex"
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
	// TagPool is the name of the PublicNetwork that a shared block belongs to, instead of TagService.
	TagPool = "pool"
	// TagNodes is the UID of the namespace kube-system on the block from which nodes get their own addresses, instead
	// of TagService. An underscore and the name of the public network follow unless that is the default one.
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

// The Warnings on the Namespace kube-system by their reason. AccountUnreadable says why the controller cannot read the
// account: one that is newer than the time at which it was read, in the PublicNetwork default, applies still.
// OrphanedIPBlock is about a block that is paid for but not used, and has no IPBlock.
const (
	AccountUnreadable = "AccountUnreadable"
	OrphanedIPBlock   = "OrphanedIPBlock"
)
