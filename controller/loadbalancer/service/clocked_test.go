package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

var servicesResource = corev1.SchemeGroupVersion.WithResource("services")

// clocked is a cluster in memory whose time passes only while all wait.
type clocked struct {
	t       *testing.T
	kube    *fake.Clientset
	shop    *shop
	events  *eventLog
	metrics *Metrics
	// patches are the writes of the controller; versions gives each version of a Service its number.
	patches, versions atomic.Int64
}

// inTime runs a test in a bubble of its own (testing/synctest) with a controller at work.
func inTime(t *testing.T, config Config, test func(*clocked), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &clocked{t: t, shop: newShop(), events: newEventLog(), kube: fake.NewClientset(objects...)}
		w.kube.PrependReactor("patch", "services", w.patch)
		factory := informers.NewSharedInformerFactory(w.kube, 0)
		config.Kube = w.kube
		config.Balancer = w.shop
		config.Events = w.events.recorder
		config.Metrics = NewMetrics()
		config.Services = factory.Core().V1().Services()
		config.Nodes = factory.Core().V1().Nodes()
		w.metrics = config.Metrics
		controller := New(config)
		ctx, cancel := context.WithCancel(testlog.Context(t))
		factory.Start(ctx.Done())
		ended := make(chan error, 1)
		go func() { ended <- controller.Run(ctx) }()
		synctest.Wait()
		test(w)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
		factory.Shutdown()
	})
}

// patch applies a patch as the API server does: to the UID that it names, as a new version, and the last
// finalizer of a deleted Service takes it along.
func (w *clocked) patch(action ktesting.Action) (bool, runtime.Object, error) {
	patch, ok := action.(ktesting.PatchAction)
	if !ok {
		return false, nil, nil
	}
	w.patches.Add(1)
	stored, err := w.kube.Tracker().Get(servicesResource, patch.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	var body struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	before, err := json.Marshal(stored)
	if err == nil {
		err = json.Unmarshal(patch.GetPatch(), &body)
	}
	if err != nil {
		return true, nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch.GetPatch(), corev1.Service{})
	if err != nil {
		return true, nil, err
	}
	after := &corev1.Service{}
	if err := json.Unmarshal(merged, after); err != nil {
		return true, nil, err
	}
	if old, ok := stored.(*corev1.Service); !ok || old.UID != body.Metadata.UID {
		return true, nil, apierrors.NewConflict(servicesResource.GroupResource(), patch.GetName(),
			errors.New("another UID"))
	}
	return true, after, w.put(after)
}

func (w *clocked) put(service *corev1.Service) error {
	if service.DeletionTimestamp != nil && len(service.Finalizers) == 0 {
		return w.kube.Tracker().Delete(servicesResource, service.Namespace, service.Name)
	}
	service.ResourceVersion = strconv.FormatInt(w.versions.Add(1), 10)
	return w.kube.Tracker().Update(servicesResource, service, service.Namespace)
}

func (w *clocked) create(name string, changes ...change) {
	w.t.Helper()
	service := serviceWith(append([]change{func(s *corev1.Service) {
		s.Name = name
		s.UID = types.UID(fmt.Sprint(name, w.versions.Load()))
		s.CreationTimestamp = metav1.Now()
		s.ResourceVersion = strconv.FormatInt(w.versions.Add(1), 10)
	}}, changes...)...)
	if err := w.kube.Tracker().Create(servicesResource, service, service.Namespace); err != nil {
		w.t.Fatal(err)
	}
}

func (w *clocked) get(name string) *corev1.Service {
	w.t.Helper()
	stored, err := w.kube.Tracker().Get(servicesResource, "shop", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	service, ok := stored.(*corev1.Service)
	if err != nil || !ok {
		w.t.Fatalf("Service %s: %T, %v", name, stored, err)
	}
	return service.DeepCopy()
}

func (w *clocked) edit(name string, changes ...change) {
	w.t.Helper()
	service := w.get(name)
	for _, c := range changes {
		c(service)
	}
	if err := w.put(service); err != nil {
		w.t.Fatal(err)
	}
}

func (w *clocked) addressOf(name string) string {
	w.t.Helper()
	service := w.get(name)
	if service == nil || len(service.Status.LoadBalancer.Ingress) == 0 {
		return ""
	}
	return service.Status.LoadBalancer.Ingress[0].IP
}

// elapse lets time pass.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// pauses are the times between calls, in whole seconds.
func pauses(times []time.Time) []int {
	var between []int
	for i := 1; i < len(times); i++ {
		between = append(between, int(times[i].Sub(times[i-1]).Round(time.Second).Seconds()))
	}
	return between
}
