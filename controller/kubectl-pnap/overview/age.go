package overview

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// outdatedAfter is the age of an agent's Lease, which it renews every 30 s, from which what the agent has written
// counts as outdated. The controller, which takes it back for good, waits for longer.
const outdatedAfter = 50 * time.Second

// lastSign returns when the agent of a Node last renewed its Lease, and whether its reports are outdated. Without a
// Lease, the kubelet shows whether the Node is reachable.
func (f Facts) lastSign(n *corev1.Node) (renewed *time.Time, outdated bool) {
	for i := range f.Agents {
		lease := &f.Agents[i]
		if lease.Name == contract.AgentLeasePrefix+n.Name && lease.Spec.RenewTime != nil {
			at := lease.Spec.RenewTime.UTC()
			return &at, f.Now.Sub(at) > outdatedAfter
		}
	}
	return nil, contract.Unreachable(n)
}

// current are the Nodes whose agents' reports are not outdated.
func (f Facts) current() []*corev1.Node {
	var nodes []*corev1.Node
	for i := range f.Nodes {
		if _, outdated := f.lastSign(&f.Nodes[i]); !outdated {
			nodes = append(nodes, &f.Nodes[i])
		}
	}
	return nodes
}
