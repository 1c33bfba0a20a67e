// Package client reaches the objects of pkg/api on an API server.
package client

import (
	"fmt"

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
