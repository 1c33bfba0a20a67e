package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// sync does for one Service what the service controller does. done means that nothing is left to do.
func (w *world) sync(name string) (done bool, err error) {
	defer w.refresh()
	return w.syncCopy(w.get(name))
}

func (w *world) syncCopy(service *corev1.Service) (done bool, err error) {
	if service == nil {
		return true, nil
	}
	if service.DeletionTimestamp == nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		_, err := w.ensure(w.lb, service)
		return err == nil, err
	}
	if err := w.release(service); err != nil {
		return false, err
	}
	w.finish(service.Name)
	return true, nil
}

// finish takes the finalizer away, and with it a Service that is going.
func (w *world) finish(name string) {
	service := w.get(name)
	if service == nil {
		return
	}
	service.Finalizers = nil
	service.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	if service.DeletionTimestamp == nil {
		w.store(service)
		return
	}
	if err := w.tracker.Delete(servicesResource, "shop", name); err != nil {
		w.t.Fatal(err)
	}
}

// ensure has a balancer ensure the address of a Service, and writes what it changed.
func (w *world) ensure(lb balancer, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	d := reconcile.NewDraft(w.kube, service)
	status, err := lb.Ensure(w.ctx, d)
	if status != nil && !servicehelper.LoadBalancerStatusEqual(&d.Service.Status.LoadBalancer, status) {
		status.DeepCopyInto(&d.Service.Status.LoadBalancer)
	}
	return status, w.save(d, err)
}

// release has the balancer release a Service, and writes what it changed.
func (w *world) release(service *corev1.Service) error {
	d := reconcile.NewDraft(w.kube, service)
	return w.save(d, w.lb.Release(w.ctx, d))
}

func (w *world) save(d *reconcile.Draft, failure error) error {
	err := d.Save(w.ctx)
	var wait *api.RetryError
	switch {
	case errors.Is(err, reconcile.ErrOutdated) && (failure == nil || errors.As(failure, &wait)):
		return api.NewRetryError("outdated", time.Second)
	case failure == nil:
		return err
	default:
		return failure
	}
}

// settle syncs until there is nothing left to do and returns how long that took. It gives up after an
// hour of model time.
func (w *world) settle(name string) time.Duration {
	w.t.Helper()
	start := w.clock.Now()
	for w.clock.Now().Sub(start) < time.Hour {
		done, err := w.sync(name)
		if done {
			return w.clock.Now().Sub(start)
		}
		w.said = append(w.said, err.Error())
		w.clock.Advance(w.pauseAfter(err))
	}
	w.t.Fatalf("Service %s is not settled after an hour; it said %q and the account holds %s", name,
		w.said[max(0, len(w.said)-3):], w.blocks())
	return 0
}

// pauseAfter is how long the service controller waits after an error: as long as the error asks
// to, else ever longer.
func (w *world) pauseAfter(err error) time.Duration {
	var again *api.RetryError
	if errors.As(err, &again) {
		w.failures = 0
		return again.RetryAfter()
	}
	w.failures++
	return min(firstBackoff<<min(w.failures-1, 10), lastBackoff)
}

// drifted runs the drift pass and returns the names of the Services that it finds.
func (w *world) drifted() []string {
	w.t.Helper()
	w.refresh()
	w.clock.Advance(time.Minute)
	found, err := w.lb.Drifted(w.ctx)
	if err != nil {
		w.t.Fatalf("the drift pass failed: %v", err)
	}
	var names []string
	for _, service := range found {
		names = append(names, service.Name)
	}
	slices.Sort(names)
	return names
}

// wantDrifted demands that the drift pass finds these Services and no other.
func (w *world) wantDrifted(want ...string) {
	w.t.Helper()
	if got := w.drifted(); !slices.Equal(got, want) {
		w.t.Errorf("the drift pass found %q, want %q", got, want)
	}
}

// refused syncs for a while and returns the last error, which must not be a mere request to call again.
func (w *world) refused(name string, during time.Duration) error {
	w.t.Helper()
	end := w.clock.Now().Add(during)
	var last error
	for w.clock.Now().Before(end) {
		done, err := w.sync(name)
		if done {
			w.t.Fatalf("Service %s is settled; it should be refused", name)
		}
		last = err
		w.clock.Advance(w.pauseAfter(err))
	}
	var again *api.RetryError
	if errors.As(last, &again) {
		w.t.Fatalf("Service %s still waits (%v); it should be refused", name, last)
	}
	return last
}

// blocks are the blocks of the account beside the one that it begins with, each in few words.
func (w *world) blocks() []string {
	var blocks []string
	for _, b := range w.sim.State(accountID).Blocks {
		if b["cidr"] != "203.0.113.0/29" {
			blocks = append(blocks, fmt.Sprintf("%v %v", b["cidr"], b["status"]))
		}
	}
	return blocks
}

// blockID returns the ID of the only block that was bought.
func (w *world) blockID() string {
	w.t.Helper()
	var ids []string
	for _, b := range w.sim.State(accountID).Blocks {
		if b["cidr"] != "203.0.113.0/29" {
			ids = append(ids, fmt.Sprint(b["id"]))
		}
	}
	if len(ids) != 1 {
		w.t.Fatalf("the account holds %d blocks, want 1: %s", len(ids), w.blocks())
	}
	return ids[0]
}

func (w *world) wantBlocks(want ...string) {
	w.t.Helper()
	if got := w.blocks(); !slices.Equal(got, want) {
		w.t.Errorf("the account holds %q, want %q", got, want)
	}
}

func (w *world) wantPurchases(want int) {
	w.t.Helper()
	if got := w.sim.Money(accountID).Purchases; got != want {
		w.t.Errorf("%d blocks were bought, want %d", got, want)
	}
}

func (w *world) arm(f pnapsim.Fault) {
	w.t.Helper()
	if err := w.sim.Arm(f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) portal(e pnapsim.Edit) {
	w.t.Helper()
	if err := w.sim.OutOfBand(e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) condition(name string) metav1.Condition {
	w.t.Helper()
	condition := meta.FindStatusCondition(w.get(name).Status.Conditions, contract.ServiceConditionBlockAssigned)
	if condition == nil {
		return metav1.Condition{}
	}
	return *condition
}

// eventReasons returns the reasons of the events so far.
func (w *world) eventReasons() []string {
	var reasons []string
	for {
		select {
		case event := <-w.events.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

func (w *world) checkViolations() {
	for _, v := range w.sim.Violations() {
		w.t.Errorf("the account convicts: %s", v)
	}
	for _, said := range w.said {
		if secrets := w.sim.FindSecrets(said); len(secrets) > 0 {
			w.t.Errorf("error %q contains %s", said, secrets)
		}
	}
}
