package main

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// What the API server refuses, and what is malformed, leaves its part unknown and the others as they are; what it does
// not answer leaves everything unknown.
func TestOnePartDoesNotHideTheOthers(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://192.0.2.1:6443", Err: &net.OpError{Op: "dial",
		Err: errors.New("connection refused")}}
	for name, tc := range map[string]struct {
		resource string // requests for it fail with err
		err      error
		unread   []overview.Part
		kinds    []overview.Kind
		text     string
	}{
		"nothing is installed": {"", nil, nil, []overview.Kind{overview.KindController}, "none has ever led"},
		"etcd fails for one resource": {"services", apierrors.NewInternalError(errors.New("no leader of etcd")),
			[]overview.Part{overview.PartServices}, []overview.Kind{overview.KindController, overview.KindUnreadable},
			"no leader of etcd"},
		"the first request is not answered": {"nodes", refused, overview.Parts(),
			[]overview.Kind{overview.KindAPIServer}, "connection refused"},
		"the last request is not answered": {"pods", refused, overview.Parts(),
			[]overview.Kind{overview.KindAPIServer}, "connection refused"},
		"the token has expired": {"nodes", apierrors.NewUnauthorized("expired"), overview.Parts(),
			[]overview.Kind{overview.KindAPIServer}, "expired"},
	} {
		kube := fake.NewClientset()
		if tc.err != nil {
			kube.PrependReactor("*", tc.resource, func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, tc.err
			})
		}
		store := kubefake.NewStore()
		facts, err := read(t.Context(), kube, store.IPBlocks(), store.PublicNetworks(), now)
		if err != nil {
			t.Fatal(err)
		}
		o := overview.Make(facts)
		var kinds []overview.Kind
		said := ""
		for _, p := range o.Problems {
			kinds = append(kinds, p.Kind)
			said += p.Message + "\n"
		}
		if !slices.Equal(kinds, tc.kinds) || !slices.Equal(o.Unknown, tc.unread) || !strings.Contains(said, tc.text) {
			t.Errorf("%s: %q, unknown is %q:\n%s", name, kinds, o.Unknown, said)
		}
	}
}
