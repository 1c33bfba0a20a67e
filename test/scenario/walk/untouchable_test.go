package walk

import (
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

const (
	dividedID   = "60473c2509268bc77fd06d50"
	dividedCIDR = "198.51.100.64/28"
)

// untouchable are blocks that no controller may touch, though their tags say that it bought them: parts of a block that
// the account's user divided, and what phoenixNAP manages. One with a status of the future may be named by Services.
func untouchable() []pnapsim.BlockSeed {
	of := func(service string) map[string]string { // no tag that the account lacks: it is made fresh in a walk
		return map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
			contract.TagService: contract.ServiceTag(namespace, service)}
	}
	blocks := []pnapsim.BlockSeed{
		{ID: dividedID, CIDR: dividedCIDR, Tags: map[string]string{contract.TagCluster: clusterUID}},
		{CIDR: "198.51.100.64/29", Parent: dividedID, Tags: of("a")},
		{CIDR: "198.51.100.72/29", Parent: dividedID, Tags: of("gone")},
		{CIDR: "198.51.100.80/29", SystemManaged: true, Tags: of("b")},
		{CIDR: "198.51.100.88/29", SystemManaged: true, Tags: of("gone")},
		{CIDR: "198.51.100.96/29", Status: "resting", Tags: map[string]string{contract.TagCluster: clusterUID}},
	}
	for i := range blocks {
		blocks[i].Location = location
	}
	return blocks
}
