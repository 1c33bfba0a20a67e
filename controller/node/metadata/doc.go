// Package metadata maintains the Nodes' annotations and labels that describe the public network to agents and
// announcers.
package metadata

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// patchMetadata writes only the given annotations and labels of a Node; nil removes one.
func patchMetadata(ctx context.Context, client kubernetes.Interface, node string, annotations,
	labels map[string]*string) error {
	metadata := map[string]any{}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	return patchNode(ctx, client, node, metadata)
}

// labelUnchanged sets labels of a Node, unless it differs from the given version by now.
func labelUnchanged(ctx context.Context, client kubernetes.Interface, node *corev1.Node,
	labels map[string]*string) error {
	return patchNode(ctx, client, node.Name, map[string]any{"resourceVersion": node.ResourceVersion, "labels": labels})
}

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
