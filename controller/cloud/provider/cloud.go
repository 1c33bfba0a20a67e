// Package provider implements the interface of the Kubernetes cloud-provider framework.
package provider

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Cloud implements cloudprovider.Interface with the parts that main has created.
type Cloud struct{ instances cloudprovider.InstancesV2 }

var _ cloudprovider.Interface = (*Cloud)(nil)

// New returns the provider.
func New(instances cloudprovider.InstancesV2) *Cloud {
	return &Cloud{instances: loggedInstances{instances}}
}

// Initialize implements cloudprovider.Interface. It does nothing: the provider's loops are controllers of the
// framework, which starts and stops them.
func (*Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer implements cloudprovider.Interface. The provider has its own Service controller.
func (*Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// InstancesV2 implements cloudprovider.Interface.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c.instances, true }

// Instances implements cloudprovider.Interface; InstancesV2 replaces it.
func (*Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface; InstancesV2 replaces it.
func (*Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface; phoenixNAP has no clusters.
func (*Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes implements cloudprovider.Interface; phoenixNAP does not route pod networks.
func (*Cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (*Cloud) ProviderName() string { return contract.ProviderName }

// HasClusterID implements cloudprovider.Interface. The identity of the cluster is the UID of the
// namespace kube-system, which always exists.
func (*Cloud) HasClusterID() bool { return true }
