package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// allowingDeletion is what a person writes on an object that is to be deleted all the same.
const allowingDeletion = `{"metadata":{"annotations":{"` + contract.AllowDeletion + `":"true"}}}`

// publicNetwork waits until the object of the public network is as a check wants it.
func publicNetwork(t *testing.T, check func(*v1beta1.PublicNetwork) bool) *v1beta1.PublicNetwork {
	t.Helper()
	var object *v1beta1.PublicNetwork
	eventually(t, patience, func() error {
		var err error
		object, err = plane.PublicNetworks().Get(t.Context(), v1beta1.DefaultNetwork, metav1.GetOptions{})
		if err == nil && !check(object) {
			err = fmt.Errorf("the PublicNetwork is %+v", object)
		}
		return err
	})
	return object
}

// checkNetwork: the object of the option shows blocks and Nodes, an edit of it is reverted, and it is deleted only by
// who means it; then it is created again.
func (s *scene) checkNetwork() {
	s.Helper()
	object := publicNetwork(s.T, func(n *v1beta1.PublicNetwork) bool {
		return meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.ConditionReady) && n.Status.ReadyMembers >= 2 &&
			int(n.Status.IPv4Blocks) == s.assigned() && n.Status.IPv4Blocks > 1
	})
	if object.Spec.ID != simtest.NetworkID || object.Spec.Members.Membership != v1beta1.MembershipManage ||
		object.Status.Location != "ASH" || object.Status.VLAN != 20 {
		s.Errorf("%+v", object)
	}
	_, err := plane.PublicNetworks().Patch(s.Context(), object.Name, types.MergePatchType,
		[]byte(`{"spec":{"ipBlocks":{"maximum":1}}}`), metav1.PatchOptions{})
	s.ok(err)
	publicNetwork(s.T, func(n *v1beta1.PublicNetwork) bool { return n.Spec.IPBlocks.Maximum == nil })
	s.event(patience, "PublicNetwork", object.Name, "PublicNetworkReverted", "change the options")

	err = plane.PublicNetworks().Delete(s.Context(), object.Name, metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		s.Errorf("a network with blocks is deleted: %v", err)
	}
	s.ok(forgetNetwork(s.Context()))
	publicNetwork(s.T, func(n *v1beta1.PublicNetwork) bool { return n.UID != object.UID && n.Status.IPv4Blocks > 1 })
}

// assigned counts the blocks that the account has on a network.
func (s *scene) assigned() int {
	count := 0
	for _, view := range s.sim.State(simtest.AccountID).Blocks {
		if view["assignedResourceId"] == simtest.NetworkID {
			count++
		}
	}
	return count
}

// forgetNetwork deletes the object of the public network, as a person does who means it.
func forgetNetwork(ctx context.Context) error {
	_, err := plane.PublicNetworks().Patch(ctx, v1beta1.DefaultNetwork, types.MergePatchType,
		[]byte(allowingDeletion), metav1.PatchOptions{})
	if err == nil {
		err = plane.PublicNetworks().Delete(ctx, v1beta1.DefaultNetwork, metav1.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// TestTheDefinitionOfPublicNetworkComesLate: Nodes are initialised without it, and once it is applied the object is
// there.
func TestTheDefinitionOfPublicNetworkComesLate(t *testing.T) {
	kinds, err := dynamic.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	definitions := kinds.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	const name = "publicnetworks.networking.phoenixnap.com"
	if _, err := definitions.Patch(t.Context(), name, types.MergePatchType, []byte(allowingDeletion),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := definitions.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	define := func(ctx context.Context) {
		t.Helper()
		if err := plane.ApplyFiles(ctx, filepath.Join("..", "deploy", "crds")); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { define(context.WithoutCancel(t.Context())) })
	eventually(t, patience, func() error {
		if _, err := plane.PublicNetworks().List(t.Context(), metav1.ListOptions{}); !client.Undefined(err) {
			return fmt.Errorf("the kind is still served: %w", err)
		}
		return nil
	})

	_, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	kube := admin(t)
	register(t, kube, "node-1")
	p := startController(t, url)
	eventually(t, time.Minute, func() error {
		return initialised(getNode(t, kube, "node-1"), simtest.Server1ID, "203.0.113.")
	})
	report(t, kube, "node-1", corev1.ConditionTrue)
	define(t.Context())
	publicNetwork(t, func(n *v1beta1.PublicNetwork) bool {
		return n.Spec.ID == simtest.NetworkID && n.Status.Nodes == "1/1"
	})
	p.end()
	if err := forgetNetwork(t.Context()); err != nil {
		t.Error(err)
	}
}
