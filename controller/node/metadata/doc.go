// Package metadata maintains the Nodes' annotations and labels that describe the public network to agents and
// announcers.
package metadata

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Reasons of the events on a Node.
const (
	// ReasonAdmitted (Normal): the Node gets the label contract.NodeVLANReady.
	ReasonAdmitted = "AdmittedToPublicNetwork"
	// ReasonExcluded (Warning): the Node loses the label.
	ReasonExcluded = "ExcludedFromPublicNetwork"
	// ReasonMembershipMissing (Warning): the Node is selected for load-balancer traffic, but its server is not a member
	// of the public network.
	ReasonMembershipMissing = "PublicNetworkMembershipMissing"
	// ReasonAgentSilent (Warning): the agent has not renewed its Lease, so its conditions no longer count. It is also
	// the reason of the conditions.
	ReasonAgentSilent = "AgentSilent"
	// ReasonNodeUnreachable (Warning): neither the kubelet nor the agent reports. It is also the reason of the
	// conditions.
	ReasonNodeUnreachable = "NodeUnreachable"
)

// patchNode merges into the metadata of a Node.
func patchNode(ctx context.Context, client kubernetes.Interface, node string, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch of node %s: %w", node, err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", node, err)
	}
	return nil
}
