package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// TestAServiceThatWaitsKeepsNoOtherWaiting: a provider that waits inside of a sync, or works off what fails
// first, lets one slow load balancer block all others.
//
//proves:known-bugs/blocking-sync
func TestAServiceThatWaitsKeepsNoOtherWaiting(t *testing.T) {
	inTime(t, Config{Workers: 1}, func(w *clocked) {
		w.shop.set(func(s *shop) {
			s.fail = func(_ string, name types.NamespacedName) error {
				switch name.Name {
				case "waits":
					return api.NewRetryError("waiting for IP block to be created", time.Second)
				case "fails":
					return errors.New("location XYZ is not on sale")
				default:
					return nil
				}
			}
		})
		w.create("waits")
		w.create("fails")
		elapse(10 * time.Second)
		w.create("web")
		elapse(10 * time.Millisecond)
		if w.addressOf("web") == "" {
			t.Error("a Service waits for others")
		}
		elapse(time.Minute)
		if n := w.shop.count("ensure", "waits"); n < 60 {
			t.Errorf("the one that waits was looked at %d times in 70 s, want once a second", n)
		}
	})
}

// mute is a balancer that says neither what it did nor that it could not.
type mute struct{ *shop }

func (mute) Ensure(context.Context, *reconcile.Draft) (*corev1.LoadBalancerStatus, error) {
	return nil, nil
}

// TestNoStatusIsAnError: no status and no error would be published as the end of an address.
//
//proves:known-bugs/no-status-no-error
func TestNoStatusIsAnError(t *testing.T) {
	service := serviceWith(heldBy(frameworks), withIngress(corev1.LoadBalancerIngress{IP: "203.0.113.10"}))
	kube := fake.NewClientset(service)
	core := informers.NewSharedInformerFactory(kube, 0).Core().V1()
	events := record.NewFakeRecorder(10)
	c := New(Config{Kube: kube, Services: core.Services(), Nodes: core.Nodes(), Balancer: mute{newShop()},
		Events: events})
	if _, err := c.serve(testlog.Context(t), reconcile.NewDraft(kube, service)); err == nil ||
		!strings.Contains(err.Error(), "no status for Service shop/web") {
		t.Errorf("got %v", err)
	}
	for _, action := range kube.Actions() {
		if action.GetVerb() == "patch" {
			t.Errorf("written: %v", action)
		}
	}
}
