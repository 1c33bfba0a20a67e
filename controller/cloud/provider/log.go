package provider

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// loggedInstances logs the framework's calls, which are frequent, and what they return.
type loggedInstances struct{ cloudprovider.InstancesV2 }

// InstanceExists implements cloudprovider.InstancesV2.
func (l loggedInstances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	exists, err := l.InstancesV2.InstanceExists(ctx, node)
	klog.FromContext(ctx).V(5).Info("InstanceExists", "node", node.Name, "exists", exists, "err", err)
	return exists, err
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (l loggedInstances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	shutdown, err := l.InstancesV2.InstanceShutdown(ctx, node)
	klog.FromContext(ctx).V(5).Info("InstanceShutdown", "node", node.Name, "shutdown", shutdown, "err", err)
	return shutdown, err
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (l loggedInstances) InstanceMetadata(ctx context.Context, node *corev1.Node) (
	*cloudprovider.InstanceMetadata, error) {
	metadata, err := l.InstancesV2.InstanceMetadata(ctx, node)
	klog.FromContext(ctx).V(5).Info("InstanceMetadata", "node", node.Name, "err", err)
	if logger := klog.FromContext(ctx).V(3); err == nil && logger.Enabled() {
		logger.Info("Metadata of a Node", "node", node.Name, "metadata", fmt.Sprintf("%+v", *metadata))
	}
	return metadata, err
}
