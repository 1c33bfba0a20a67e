package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// contradictions reports invalid combinations of options that are each valid by themselves. It also rejects options
// without effect, which a user would otherwise assume to be in effect.
func contradictions(s source, c *Config) []error {
	var problems []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	raw, _ := s.get(loadBalancer)
	if raw == "" {
		for _, o := range needNetwork(c) {
			refuse(true, "%s needs a public network: also set %s, or remove it", s.at(o), loadBalancer.name())
		}
	}
	refuse(c.NodeAddress == NodeAddressNone && c.NodeIPBlock != "",
		"%s gives nodes an address and %s gives them none: remove one of the two", s.at(nodeIPBlock), s.at(nodeAddress))
	refuse(c.NodeIPBlock != "" && slices.Contains(c.OwnBlocks, c.NodeIPBlock),
		"%s and %s both contain the IP block %s: nodes and Services cannot share a block, so remove it from one of "+
			"the two",
		s.at(nodeIPBlock), s.at(ownIPBlocks), c.NodeIPBlock)
	refuse(c.APIServerPort != 0 && !c.ControlPlaneEndpoint,
		"%s only affects the control-plane endpoint: also set %s, or remove it", s.at(apiServerPort),
		controlPlaneEndpoint.name())
	refuse(c.Allocation == contract.AllocationShared && c.BlockSize == "/30",
		"%s: a block of size /30 has one address for Services, which cannot be shared: set /28 or /29",
		s.at(ipBlockSize))
	return problems
}

// needNetwork returns the options in use that have no effect without a public network.
func needNetwork(c *Config) []option {
	var needy []option
	for o, used := range map[*option]bool{
		&manageMembership:     c.ManageMembership,
		&nodeIPBlock:          c.NodeIPBlock != "",
		&ownIPBlocks:          len(c.OwnBlocks) > 0,
		&controlPlaneEndpoint: c.ControlPlaneEndpoint,
	} {
		if used {
			needy = append(needy, *o)
		}
	}
	slices.SortFunc(needy, func(a, b option) int { return strings.Compare(a.flag, b.flag) })
	return needy
}

// at returns where the option is set.
func (s source) at(o option) string {
	_, where := s.get(o)
	return where
}
