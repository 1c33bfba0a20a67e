// Package v1beta1 contains the objects by which users see and say which public networks and IP blocks of the account
// the cluster uses.
//
// Fields are only ever added, so that there is never a conversion between versions.
//
// +kubebuilder:object:generate=true
// +groupName=networking.phoenixnap.com
package v1beta1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group of the kinds with its version.
var GroupVersion = schema.GroupVersion{Group: "networking.phoenixnap.com", Version: "v1beta1"}
