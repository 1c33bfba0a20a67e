package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// retainedBlocks counts the blocks that outlive their Services, in all and by namespace.
type retainedBlocks struct {
	all int
	in  map[string]int
}

func (r *retainedBlocks) add(namespace string) {
	r.all++
	r.in[namespace]++
}

// full says which bound keeps one more block of the namespace from being retained; empty when none does.
func (r *retainedBlocks) full(namespace string, opts Options) string {
	const bound = "%s has or expects %d IP blocks that outlive their Services, and may have %d (%s)"
	switch {
	case r.in[namespace] >= opts.MaxRetainedPerNamespace:
		return fmt.Sprintf(bound, "namespace "+namespace, r.in[namespace], opts.MaxRetainedPerNamespace,
			"--max-retained-ip-blocks-per-namespace")
	case r.all >= opts.MaxRetained:
		return fmt.Sprintf(bound, "the cluster", r.all, opts.MaxRetained, "--max-retained-ip-blocks")
	default:
		return ""
	}
}

// refuseRetaining refuses to let the block of the Service outlive it where no more may: such a block is paid for
// without end, and its author needs no right but to create and delete Services. Blocks that are retained come first,
// and then the Services that ask for it, in the order of their creation; one that is refused takes the place of no
// other. A block that is retained already stays so.
func refuseRetaining(obs Observed) (refusal ipblock.Step, refused bool) {
	count := retainedBlocks{in: map[string]int{}}
	for _, b := range append(obs.Known(), ownBlocks(obs)...) {
		switch {
		case !network.OfCluster(b, obs.Owner.Cluster) || !network.Retained(b):
		case obs.Owner.Owns(b):
			return ipblock.Step{}, false
		default:
			count.add(network.NamespaceOf(b))
		}
	}
	for _, earlier := range askedBefore(obs) {
		if count.full(earlier.Namespace, obs.Options) == "" {
			count.add(earlier.Namespace)
		}
	}
	full := count.full(obs.Service.Namespace, obs.Options)
	if full == "" {
		return ipblock.Step{}, false
	}
	return ipblock.RefuseStep(network.Block{}, ipblock.TooManyRetained,
		"annotation %s cannot be served: %s; remove the annotation, release one of these blocks, or have an "+
			"administrator raise the option", contract.ServiceIPRetain, full), true
}

// ownBlocks are the Service's own, as they were read by their ID.
func ownBlocks(obs Observed) []network.Block {
	var own []network.Block
	for _, s := range obs.Own {
		own = append(own, s.Block)
	}
	return own
}

// askedBefore are the other Services that ask for a block that outlives them and have none that is retained yet, and
// that were created before this one, the oldest first.
func askedBefore(obs Observed) []*corev1.Service {
	older := func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	}
	var asked []*corev1.Service
	for _, other := range obs.Services {
		if other.UID == obs.Service.UID || other.Annotations[contract.ServiceIPRetain] != contract.TagTrue ||
			!NeedsBlock(other) || older(other, obs.Service) >= 0 {
			continue
		}
		owner := OwnerOf(other, obs.Owner.Cluster)
		counted := func(b network.Block) bool { return owner.Owns(b) && network.Retained(b) }
		desired, problem := ReadDesired(other, obs.Options)
		if problem == nil && desired.Retain && !slices.ContainsFunc(obs.Known(), counted) {
			asked = append(asked, other)
		}
	}
	slices.SortFunc(asked, older)
	return asked
}
