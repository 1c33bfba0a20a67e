// Package client reaches the objects of pkg/api on an API server.
package client

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// IPBlocks reads and changes IPBlocks. A write of an IPBlock leaves its status as it is, one of its status all else.
type IPBlocks = gentype.ClientWithList[*v1beta1.IPBlock, *v1beta1.IPBlockList]

// New returns a client of the API server that the configuration leads to. It makes no calls.
func New(config *rest.Config) (*IPBlocks, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1beta1.GroupVersion
	config.ContentType = runtime.ContentTypeJSON // the API server knows objects of definitions in no other form
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	connection, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of IPBlocks: %w", err)
	}
	return gentype.NewClientWithList("ipblocks", connection, runtime.NewParameterCodec(scheme), "",
		func() *v1beta1.IPBlock { return &v1beta1.IPBlock{} },
		func() *v1beta1.IPBlockList { return &v1beta1.IPBlockList{} }), nil
}

// install is how the definition of the objects gets on the API server.
const install = "install the definition of IPBlock of this version: kubectl apply -k deploy/crds"

// Undefined reports whether the API server does not know the kind. That an object is missing is something else.
func Undefined(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Explain says of an error what was to be done, and what to do where the definition is missing; nil stays nil.
func Explain(action string, err error) error {
	switch {
	case err == nil:
		return nil
	case Undefined(err):
		return fmt.Errorf("%s: %w; %s", action, err, install)
	default:
		return fmt.Errorf("%s: %w", action, err)
	}
}

// NotKept is the error about an API server that stored something else than was written.
func NotKept(name string) error {
	return fmt.Errorf("the API server did not keep the status of IPBlock %s as it was written; exclude it from the "+
		"admission webhook that changes it, or %s", name, install)
}
