package service

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// TestWalk lets users, other controllers and a failing balancer do what they like, and holds what it comes to
// against what the Services say in the end.
//
//proves:known-bugs/stale-copies
func TestWalk(t *testing.T) {
	for range seeds.Count(t, 12) {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			inTime(t, Config{Workers: 1 + random.IntN(4)}, func(w *clocked) {
				walk := &walk{clocked: w, random: random, luck: rand.New(rand.NewPCG(seed, 1))}
				w.shop.set(func(s *shop) {
					s.fail = walk.fail
					s.waits = random.IntN(4)
				})
				for range 60 {
					walk.step()
					elapse(time.Duration(random.IntN(1500)) * time.Millisecond)
				}
				w.shop.set(func(s *shop) { s.fail = nil })
				elapse(2 * lastBackoff)
				walk.check()
			})
		})
	}
}

type walk struct {
	*clocked
	random *rand.Rand
	// luck decides which calls fail, errorRate of a hundred; the shop's lock guards both.
	luck      *rand.Rand
	errorRate int
}

func (w *walk) fail(string, types.NamespacedName) error {
	switch roll := w.luck.IntN(100); {
	case roll < w.errorRate:
		return errors.New("the API is down")
	case roll < 2*w.errorRate:
		return api.NewRetryError("waiting for another change of the public network", time.Second)
	default:
		return nil
	}
}

// step does one thing to one of a few Services.
func (w *walk) step() {
	name := fmt.Sprintf("web-%d", w.random.IntN(4))
	service := w.get(name)
	if service == nil {
		w.create(name, w.anyClass())
		return
	}
	if service.DeletionTimestamp != nil {
		if w.random.IntN(10) == 0 {
			w.edit(name, heldBy()) // someone loses patience
		}
		return
	}
	switch w.random.IntN(9) {
	case 0, 1:
		w.remove(service)
	case 2:
		w.edit(name, ofType(corev1.ServiceTypeClusterIP), func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil })
	case 3:
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			w.edit(name, ofType(corev1.ServiceTypeLoadBalancer), w.anyClass())
		}
	case 4:
		w.edit(name, withIngress(corev1.LoadBalancerIngress{IP: "198.51.100.7"}))
	case 5:
		w.edit(name, withIngress())
	case 6:
		w.edit(name, heldBy())
	case 7:
		w.edit(name, annotated("example.com/step", fmt.Sprint(w.random.IntN(1000))))
	case 8:
		rate := w.random.IntN(40)
		w.shop.set(func(*shop) { w.errorRate = rate })
	}
}

func (w *walk) anyClass() change {
	return func(s *corev1.Service) {
		switch w.random.IntN(4) {
		case 0:
			ofClass(contract.LoadBalancerClass)(s)
		case 1:
			ofClass("example.com/other")(s)
			heldBy(frameworks)(s)
		default:
		}
	}
}

// remove deletes a Service as the API server does.
func (w *walk) remove(service *corev1.Service) {
	service.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if err := w.put(service); err != nil {
		w.t.Fatal(err)
	}
}

// check holds every Service and the shop against each other.
func (w *walk) check() {
	for i := range 4 {
		name := fmt.Sprintf("web-%d", i)
		service := w.get(name)
		if service == nil || !plan.WantsAddress(service) {
			w.checkForeign(name, service)
			continue
		}
		address := w.addressOf(name)
		if !w.shop.holds(name) || address != w.shop.addressOf(name) ||
			!slices.Contains(service.Finalizers, finalizerFor(service)) {
			w.t.Errorf("%s is not served; it has %q, the shop says %q: %s", name, address, w.shop.addressOf(name),
				describe(service))
		}
	}
}

// checkForeign holds a Service that is not to be served: nothing of ours is left, nothing of others is taken.
func (w *walk) checkForeign(name string, service *corev1.Service) {
	if w.shop.holds(name) {
		w.t.Errorf("%s is leaked; it is %s", name, describe(service))
	}
	if service == nil {
		return
	}
	if contract.HasOwnedFields(service) || slices.Contains(service.Finalizers, ours) {
		w.t.Errorf("%s has something of ours: %s", name, describe(service))
	}
	if service.DeletionTimestamp != nil && !slices.Contains(service.Finalizers, frameworks) {
		w.t.Errorf("%s has no finalizer and is not gone: %s", name, describe(service))
	}
	if service.DeletionTimestamp != nil && service.Spec.LoadBalancerClass == nil &&
		service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.t.Errorf("%s was not let go: %s", name, describe(service))
	}
}
