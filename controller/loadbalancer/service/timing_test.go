package service

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"
	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

//proves:known-bugs/waiting-backs-off
//proves:known-bugs/slow-deletion
func TestWaitingIsNoFailure(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.shop.set(func(s *shop) {
			s.waits = 4
			s.pause = 3 * time.Second
		})
		w.create("web")
		elapse(time.Minute)
		if got := pauses(w.shop.times("ensure", "web")); !cmp.Equal(got, []int{3, 3, 3, 3}) {
			t.Errorf("pauses between the calls: %v", got)
		}
		w.edit("web", func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		elapse(time.Minute)
		if got := pauses(w.shop.times("release", "web")); !cmp.Equal(got, []int{3, 3, 3, 3}) {
			t.Errorf("pauses between the calls of the release: %v", got)
		}
		if w.get("web") != nil || w.shop.holds("web") {
			t.Error("the Service was not released")
		}
		if counts := w.events.counts(); counts["Warning "+eventSyncFailed]+counts["Normal "+eventWaiting] != 0 {
			t.Errorf("short waits are reported: %v", counts)
		}
	})
}

// TestWaitsAreBounded: whoever asks for a pause of a month gets one of minutes.
func TestWaitsAreBounded(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.shop.set(func(s *shop) {
			s.waits = 2
			s.pause = 30 * 24 * time.Hour
		})
		w.create("web")
		elapse(time.Hour)
		if got := pauses(w.shop.times("ensure", "web")); !cmp.Equal(got, []int{600, 600}) {
			t.Errorf("pauses between the calls: %v", got)
		}
	})
}

//proves:known-bugs/unstable-errors
func TestErrorsBackOffAndAWaitEndsThat(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		broken := true
		w.shop.set(func(s *shop) {
			s.fail = func(string, types.NamespacedName) error {
				if broken {
					return errors.New("location XYZ is not on sale")
				}
				return nil
			}
		})
		w.create("web", heldBy(frameworks))
		elapse(30 * time.Minute)
		if got := pauses(w.shop.times("ensure", "web")); len(got) < 8 ||
			!cmp.Equal(got[:8], []int{5, 10, 20, 40, 80, 160, 300, 300}) {
			t.Errorf("pauses between the calls: %v", got)
		}
		warnings := slices.DeleteFunc(w.events.all(),
			func(e string) bool { return !strings.HasPrefix(e, "Warning "+eventSyncFailed) })
		if slices.Sort(warnings); len(warnings) < 9 || len(slices.Compact(warnings)) != 1 {
			t.Errorf("warnings differ, or there are too few: %v", warnings)
		}
		w.shop.set(func(s *shop) {
			broken = false
			s.waits = 1
			s.pause = time.Second
		})
		elapse(lastBackoff + 2*time.Second)
		if w.addressOf("web") == "" {
			t.Fatal("no address though nothing is broken any more")
		}
		w.shop.set(func(s *shop) {
			broken = true
			s.calls = nil
		})
		w.edit("web", annotated("a", "b"))
		elapse(6 * time.Second)
		if got := pauses(w.shop.times("ensure", "web")); !cmp.Equal(got, []int{5}) {
			t.Errorf("the failures of before count on: pauses %v", got)
		}
	})
}

func TestALongWaitIsReportedOnce(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.shop.set(func(s *shop) {
			s.waits = 100
			s.pause = 3 * time.Second
		})
		w.create("web")
		elapse(10 * time.Minute)
		counts := w.events.counts()
		if counts["Normal "+eventWaiting] != 1 || counts["Normal "+eventEnsuring] != 1 ||
			counts["Normal "+eventEnsured] != 1 {
			t.Errorf("events: %v", counts)
		}
	})
}

//proves:known-bugs/flapping-nodes
//proves:known-bugs/missed-nodes
func TestChangesOfNodesAreCollected(t *testing.T) {
	inTime(t, Config{Workers: 2}, func(w *clocked) {
		for i := range 10 {
			w.create("web-" + strconv.Itoa(i))
		}
		w.create("foreign", ofClass("example.com/other"))
		elapse(time.Minute)
		w.shop.set(func(s *shop) { s.calls = nil })
		before := w.patches.Load()
		for i := range 50 {
			node := nodeWith(func(n *corev1.Node) { n.Name = "node-" + strconv.Itoa(i) })
			if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			elapse(50 * time.Millisecond)
		}
		elapse(10 * time.Second)
		if n := w.shop.count("ensure", "web-0"); n < 2 || n > 5 {
			t.Errorf("50 Nodes within 2.5 s made %d calls for a Service", n)
		}
		if n := w.shop.count("ensure", "foreign"); n != 0 {
			t.Errorf("%d calls for a foreign Service", n)
		}
		if n := w.patches.Load() - before; n != 0 {
			t.Errorf("%d writes though nothing was to be changed", n)
		}
		w.shop.set(func(s *shop) { s.calls = nil })
		heartbeat(t, w, "node-1")
		elapse(10 * time.Second)
		if n := w.shop.count("ensure", "web-0"); n != 0 {
			t.Errorf("a heartbeat made %d calls", n)
		}
	})
}

func heartbeat(t *testing.T, w *clocked, name string) {
	t.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		node.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		_, err = w.kube.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReportsOfAgentsReachTheServicesConcerned(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.create("web")
		elapse(time.Second)
		w.create("api")
		elapse(time.Minute)
		w.shop.set(func(s *shop) { s.calls = nil })
		node, err := w.kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err == nil {
			node.Annotations[contract.NodeReportedAddresses] = `{"` + w.addressOf("api") +
				`":{"state":"Answered","since":"2026-03-01T12:00:00Z"}}`
			_, err = w.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		elapse(10 * time.Second)
		if web, api := w.shop.count("ensure", "web"), w.shop.count("ensure", "api"); web != 0 || api != 1 {
			t.Errorf("%d calls for another Service, %d for the one with the address", web, api)
		}
	}, nodeWith(func(*corev1.Node) {}))
}

//proves:known-bugs/never-looked-again
func TestDriftIsLookedFor(t *testing.T) {
	inTime(t, Config{DriftEvery: time.Minute}, func(w *clocked) {
		w.create("web")
		w.create("api")
		elapse(time.Second)
		w.shop.set(func(s *shop) {
			s.calls = nil
			s.stray = []types.NamespacedName{{Namespace: "shop", Name: "api"}}
		})
		elapse(time.Minute)
		if web, api := w.shop.count("ensure", "web"), w.shop.count("ensure", "api"); web != 0 || api != 1 {
			t.Errorf("%d calls for a healthy Service, %d for one that has drifted", web, api)
		}
		w.shop.set(func(s *shop) { s.stray = []types.NamespacedName{{Namespace: "shop", Name: "no-more"}} })
		elapse(5 * time.Minute)
		if n := w.shop.looked; n != 6 {
			t.Errorf("looked %d times in six minutes", n)
		}
	})
}

func TestAnnouncerThatIgnoresTheClass(t *testing.T) {
	ready := true
	slice := func(name string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
	}
	class := ofClass(contract.LoadBalancerClass)
	inTime(t, Config{Announcer: contract.AnnouncerKubeVIP}, func(w *clocked) {
		w.create("ignored", class)
		w.create("taken", class)
		w.create("unused", class)
		w.create("plain")
		w.create("answering", class)
		elapse(10 * time.Second)
		w.edit("taken", annotated("kube-vip.io/vipHost", "node-1"))
		node := nodeWith(func(n *corev1.Node) {
			n.Annotations[contract.NodeReportedAddresses] = `{"` + w.addressOf("answering") +
				`":{"state":"Answered","since":"2026-03-01T12:00:00Z"}}`
		})
		if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		elapse(45 * time.Second)
		if n := w.events.counts()["Warning "+eventIgnored]; n != 0 {
			t.Errorf("%d warnings before a minute was over", n)
		}
		elapse(10 * time.Minute)
		if n := w.events.counts()["Warning "+eventIgnored]; n != 1 {
			t.Errorf("%d warnings, want one for the Service that has endpoints, no host and no answer: %v", n,
				w.events.all())
		}
	}, slice("ignored"), slice("taken"), slice("plain"), slice("answering"))
}

//proves:known-bugs/stale-copies
//proves:known-bugs/endless-loops
func TestManyCallersStopTogether(t *testing.T) {
	inTime(t, Config{Workers: 5}, func(w *clocked) {
		w.shop.set(func(s *shop) {
			s.fail = func(string, types.NamespacedName) error { return api.NewRetryError("waiting", time.Second) }
		})
		for i := range 20 {
			w.create("web-" + strconv.Itoa(i))
		}
		elapse(10 * time.Second)
		for i := range 20 {
			name := "web-" + strconv.Itoa(i)
			if got := pauses(w.shop.times("ensure", name)); slices.Max(got) != 1 {
				t.Errorf("%s: pauses %v", name, got)
			}
		}
	})
}

// TestDryRun: what would be done is reported once, and not tried again until something changes.
func TestDryRun(t *testing.T) {
	client, err := pnap.New(pnap.Config{
		BaseURL: "http://127.0.0.1:1", TokenURL: "http://127.0.0.1:1/token", DryRun: true,
		Credentials: func() (string, string, error) { return "id", "secret", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	would := client.DeleteBlock(testlog.Context(t), "60473c2509268bc77fd06d32")
	if !pnap.IsDryRun(would) {
		t.Fatalf("a dry run ends with %v", would)
	}
	inTime(t, Config{}, func(w *clocked) {
		w.shop.set(func(s *shop) { s.fail = func(string, types.NamespacedName) error { return would } })
		w.create("web", heldBy(frameworks))
		elapse(30 * time.Minute)
		counts := w.events.counts()
		if n := w.shop.count("ensure", "web"); n != 1 || counts["Normal "+eventDryRun] != 1 ||
			counts["Warning "+eventSyncFailed] != 0 {
			t.Errorf("%d calls, events %v", n, w.events.all())
		}
		w.shop.set(func(s *shop) { s.stray = []types.NamespacedName{{Namespace: "shop", Name: "web"}} })
		elapse(defaultDriftEvery)
		if n, counts := w.shop.count("ensure", "web"), w.events.counts(); n != 2 || counts["Normal "+eventDryRun] != 1 {
			t.Errorf("after a change of the account: %d calls, events %v", n, w.events.all())
		}
	})
}

// TestALostWriteIsNoFailure: another writer was faster; the next look will see what it wrote.
func TestALostWriteIsNoFailure(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		lost := 3
		w.shop.set(func(s *shop) {
			s.fail = func(string, types.NamespacedName) error {
				if lost--; lost < 0 {
					return nil
				}
				return fmt.Errorf("publish: %w", apierrors.NewConflict(servicesResource.GroupResource(), "web",
					errors.New("the object has been modified")))
			}
		})
		w.create("web", heldBy(frameworks))
		elapse(10 * time.Second)
		if got := pauses(w.shop.times("ensure", "web")); !cmp.Equal(got, []int{1, 1, 1}) ||
			w.events.counts()["Warning "+eventSyncFailed] != 0 || w.addressOf("web") == "" {
			t.Errorf("pauses %v, events %v", got, w.events.all())
		}
	})
}

func TestMetrics(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	inTime(t, Config{}, func(w *clocked) {
		registry.MustRegister(w.metrics.All()...)
		w.shop.set(func(s *shop) {
			s.waits = 2
			s.pause = 3 * time.Second
		})
		w.create("web")
		elapse(time.Minute)
		w.create("plain", ofType(corev1.ServiceTypeClusterIP),
			func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) })
		elapse(time.Second)
		w.edit("plain", ofType(corev1.ServiceTypeLoadBalancer))
		elapse(time.Minute)
		node := nodeWith(func(*corev1.Node) {})
		if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
	})
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			got[family.GetName()] = metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			if family.GetName() == "phoenixnap_service_publish_duration_seconds" {
				got["seconds"] = metric.GetHistogram().GetSampleSum()
			}
		}
	}
	seconds := got["seconds"]
	delete(got, "seconds")
	want := map[string]float64{
		"phoenixnap_service_publish_duration_seconds": 2, "service_controller_loadbalancer_sync_total": 8,
		"service_controller_nodesync_error_total":                     0,
		"service_controller_nodesync_latency_seconds":                 1,
		"service_controller_update_loadbalancer_host_latency_seconds": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if seconds < 12 || seconds > 14 {
		t.Errorf("two Services that waited 6 s each took %.1f s", seconds)
	}
}
