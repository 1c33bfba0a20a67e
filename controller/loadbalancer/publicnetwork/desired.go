package publicnetwork

import (
	"math"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// desired is what the options say of their public network. Each field has a value: the API server adds no default.
func desired(o *config.Config) v1beta1.PublicNetworkSpec {
	spec := v1beta1.PublicNetworkSpec{
		ID:        o.LoadBalancer.Network.ID,
		Announcer: announcer.Word(o.LoadBalancer.Announcer),
		IPBlocks: v1beta1.IPBlockPolicy{
			Allocation:                  v1beta1.AllocationDedicated,
			Size:                        o.BlockSize,
			MaximumRetained:             new(count(o.MaxRetained)),
			MaximumRetainedPerNamespace: new(count(o.MaxRetainedPerNamespace)),
		},
		Members: v1beta1.MemberPolicy{
			NodeSelector: requirements(o.ServiceNodeSelector),
			Membership:   v1beta1.MembershipReport,
			Addresses:    v1beta1.MemberAddressesBlock,
		},
	}
	if o.Allocation == contract.AllocationShared {
		spec.IPBlocks.Allocation = v1beta1.AllocationShared
	}
	if o.MaxIPBlocks > 0 {
		spec.IPBlocks.Maximum = new(count(o.MaxIPBlocks))
	}
	if o.ManageMembership {
		spec.Members.Membership = v1beta1.MembershipManage
	}
	if o.NodeAddress == config.NodeAddressNone {
		spec.Members.Addresses = v1beta1.MemberAddressesNone
	}
	return spec
}

// count is a number of an option as objects have it; a larger one means the same.
func count(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // options have no negative counts

// operators are the words for those of selectors. A selector may have one with a synonym.
var operators = map[selection.Operator]string{
	selection.In: "In", selection.Equals: "In", selection.DoubleEquals: "In",
	selection.NotIn: "NotIn", selection.NotEquals: "NotIn",
	selection.Exists: "Exists", selection.DoesNotExist: "DoesNotExist",
	selection.GreaterThan: "Gt", selection.LessThan: "Lt",
}

// requirements are what a selector demands; nil for one of all Nodes.
func requirements(selector labels.Selector) []v1beta1.NodeRequirement {
	if selector == nil {
		return nil
	}
	var all []v1beta1.NodeRequirement
	demanded, _ := selector.Requirements() // the parser of the option makes none that selects nothing
	for _, r := range demanded {
		one := v1beta1.NodeRequirement{Key: r.Key(), Operator: operators[r.Operator()]}
		if len(r.ValuesUnsorted()) > 0 {
			one.Values = r.Values().List()
		}
		all = append(all, one)
	}
	return all
}
