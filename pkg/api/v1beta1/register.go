package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme adds the kinds to a scheme, by which clients know them.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &IPBlock{}, &IPBlockList{}, &PublicNetwork{}, &PublicNetworkList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
