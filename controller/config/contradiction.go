package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// contradictions says what does not go together although each option is right by itself. What is without
// effect is refused too: silence would make a user believe that it has one.
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
			refuse(true, "%s needs a public network: set %s too, or leave it out", s.at(o), loadBalancer.name())
		}
	}
	refuse(c.NodeAddress == NodeAddressNone && c.NodeIPBlock != "",
		"%s gives nodes addresses of their own and %s gives them none: leave one of the two out", s.at(nodeIPBlock), s.at(nodeAddress))
	refuse(c.NodeIPBlock != "" && slices.Contains(c.OwnBlocks, c.NodeIPBlock),
		"%s and %s both name the IP block %s: nodes and Services cannot share one, so leave it out of one of the two", s.at(nodeIPBlock), s.at(ownIPBlocks), c.NodeIPBlock)
	refuse(c.APIServerPort != 0 && !c.ControlPlaneEndpoint,
		"%s has an effect on the control-plane endpoint only: set %s too, or leave it out", s.at(apiServerPort), controlPlaneEndpoint.name())
	refuse(c.Allocation == contract.AllocationShared && c.BlockSize == "/30",
		"%s: a block of size /30 has one address for Services, which cannot be shared: set /28 or /29", s.at(ipBlockSize))
	return problems
}

// needNetwork returns the options in use that mean nothing without a public network.
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

// at is where the option is set.
func (s source) at(o option) string {
	_, where := s.get(o)
	return where
}
