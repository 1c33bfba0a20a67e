// Package client reaches the objects of pkg/api on an API server.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// IPBlocks reads and changes IPBlocks. A write of an IPBlock leaves its status as it is, one of its status all else.
type IPBlocks struct {
	*gentype.ClientWithList[*v1beta1.IPBlock, *v1beta1.IPBlockList]
	connection rest.Interface
}

// PublicNetworks reads and changes PublicNetworks, as IPBlocks does IPBlocks.
type PublicNetworks = gentype.ClientWithList[*v1beta1.PublicNetwork, *v1beta1.PublicNetworkList]

// New returns a client of the API server that the configuration leads to. It makes no calls.
func New(config *rest.Config) (*IPBlocks, error) {
	connection, parameters, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("client of IPBlocks: %w", err)
	}
	return &IPBlocks{gentype.NewClientWithList("ipblocks", connection, parameters, "",
		func() *v1beta1.IPBlock { return &v1beta1.IPBlock{} },
		func() *v1beta1.IPBlockList { return &v1beta1.IPBlockList{} }), connection}, nil
}

// NewPublicNetworks is New for PublicNetworks.
func NewPublicNetworks(config *rest.Config) (*PublicNetworks, error) {
	connection, parameters, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("client of PublicNetworks: %w", err)
	}
	return gentype.NewClientWithList("publicnetworks", connection, parameters, "",
		func() *v1beta1.PublicNetwork { return &v1beta1.PublicNetwork{} },
		func() *v1beta1.PublicNetworkList { return &v1beta1.PublicNetworkList{} }), nil
}

// connect returns what clients of the kinds share.
func connect(config *rest.Config) (*rest.RESTClient, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1beta1.GroupVersion
	config.ContentType = runtime.ContentTypeJSON // the API server knows objects of definitions in no other form
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	connection, err := rest.RESTClientFor(config)
	return connection, runtime.NewParameterCodec(scheme), err
}

// definition is where the API server has the definition of the kind.
const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipblocks.networking.phoenixnap.com"

// Definition reads the metadata of the definition of the kind: while that is being deleted, so are all objects, and
// their deletion says nothing about their blocks.
func (c *IPBlocks) Definition(ctx context.Context) (metav1.ObjectMeta, error) {
	raw, err := c.connection.Get().AbsPath(definition).DoRaw(ctx)
	if err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("read the definition of IPBlock: %w", err)
	}
	var read metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &read); err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("read the definition of IPBlock: %w", err)
	}
	return read.ObjectMeta, nil
}

// install is how the definition of the objects gets on the API server.
const install = "install the definition of IPBlock of this version: kubectl apply -k deploy/crds"

// ErrTerminating says that the definition is being deleted, and all objects with it. Until it is applied again nothing
// is known, as without a definition.
var ErrTerminating = errors.New("the definition of IPBlock is being deleted; to complete that, give it the " +
	"annotation " + contract.AllowDeletion + "=true; after it, " + install)

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
func NotKept(what, name string) error {
	return fmt.Errorf("the API server did not keep the %s of IPBlock %s as it was written; exclude it from the "+
		"admission webhook that changes it, or %s", what, name, install)
}
