package service

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func hasGone(s *corev1.Service) bool { return s == nil }

//proves:known-bugs/udp
func TestTheWholeLife(t *testing.T) {
	c := newCluster(t)
	c.shop.waits = 3
	stop := c.start()
	c.create("web")
	web := c.await("web", "published", isPublished)
	if !slices.Equal(web.Finalizers, []string{frameworks}) {
		t.Errorf("finalizers %v", web.Finalizers)
	}
	vip := corev1.LoadBalancerIPModeVIP
	want := []corev1.LoadBalancerIngress{{IP: "203.0.113.10", IPMode: &vip, Ports: []corev1.PortStatus{
		{Port: 443, Protocol: corev1.ProtocolTCP}, {Port: 53, Protocol: corev1.ProtocolUDP},
		{Port: 80, Protocol: corev1.ProtocolTCP},
	}}}
	if diff := cmp.Diff(want, web.Status.LoadBalancer.Ingress); diff != "" {
		t.Error(diff)
	}
	c.quiet()
	if n := c.shop.count("ensure", "web"); n > 5 {
		t.Errorf("%d calls for a Service that waited three times", n)
	}
	c.delete("web")
	c.await("web", "gone", hasGone)
	if c.shop.holds("web") {
		t.Error("the Service is gone and its address is not released")
	}
	c.await("web", "reported", func(*corev1.Service) bool { return c.events.counts()["Normal "+eventDeleted] == 2 })
	stop()
	counts := c.events.counts()
	for reason, n := range counts { // two Services lived
		if n != 2 || !slices.Contains([]string{"Normal " + eventEnsuring, "Normal " + eventEnsured,
			"Normal " + eventDeleting, "Normal " + eventDeleted, "Warning " + eventUnavailable}, reason) {
			t.Errorf("%d times %s", n, reason)
		}
	}
}

//proves:known-bugs/type-change-leftovers
//proves:service-changes/type-back
func TestAChangeOfTypeAndBack(t *testing.T) {
	c := newCluster(t)
	c.shop.waits = 2
	c.start()
	c.create("web", annotated("example.com/keep", "me"))
	c.await("web", "published", isPublished)
	c.patch("web", `{"metadata":{"annotations":{"phoenixnap.com/ip-address":"203.0.113.10"}}}`)
	c.patch("web", `{"spec":{"type":"ClusterIP"}}`)
	web := c.await("web", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 0 })
	if len(web.Status.LoadBalancer.Ingress)+len(web.Status.Conditions) != 0 || len(web.Annotations) != 1 ||
		c.shop.holds("web") {
		t.Errorf("something of ours is left: %s", describe(web))
	}
	c.patch("web", `{"spec":{"type":"LoadBalancer"}}`)
	c.await("web", "published again, and users know", func(s *corev1.Service) bool {
		return isPublished(s) && c.events.counts()["Normal "+eventEnsured] >= 2 // the event follows the status
	})
	if counts := c.events.counts(); counts["Normal "+eventEnsured] != 2 || counts["Normal "+eventDeleted] != 1 {
		t.Errorf("events %v", counts)
	}
}

//proves:known-bugs/load-balancer-class
func TestOurClass(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web", ofClass(contract.LoadBalancerClass))
	web := c.await("web", "published", isPublished)
	if !slices.Equal(web.Finalizers, []string{ours}) {
		t.Errorf("finalizers %v", web.Finalizers)
	}
	c.delete("web")
	c.await("web", "gone", hasGone)
	if c.shop.holds("web") {
		t.Error("its address is not released")
	}
}

// TestAForeignClassIsNotChanged: the framework's service controller would call the provider's deletion and strip
// the finalizer of the other class's controller, whose load balancer would never be deleted.
//
//proves:known-bugs/foreign-finalizer
func TestAForeignClassIsNotChanged(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web", ofClass("example.com/other"), heldBy(frameworks))
	c.create("plain", ofClass("example.com/other"), heldBy(frameworks))
	c.quiet()
	c.delete("web")
	c.patch("plain", `{"spec":{"type":"ClusterIP"}}`)
	c.quiet()
	for _, name := range []string{"web", "plain"} {
		if service := c.get(name); service == nil || !slices.Equal(service.Finalizers, []string{frameworks}) {
			t.Errorf("%s: its finalizer was taken: %s", name, describe(service))
		}
		if c.shop.count("ensure", name)+c.shop.count("release", name) != 0 {
			t.Errorf("%s: the balancer was called", name)
		}
	}
	// Its own controller acts at last.
	c.patch("web", `{"metadata":{"finalizers":null}}`)
	c.await("web", "gone", hasGone)
}

// TestFinalizerOfOursIsKnownWithoutMarks: the API server wipes the class with the type; that we put the
// framework's finalizer there is known from the managed fields only.
func TestFinalizerOfOursIsKnownWithoutMarks(t *testing.T) {
	c := newCluster(t)
	stop := c.start()
	c.shop.set(func(s *shop) {
		s.fail = func(string, types.NamespacedName) error { return errors.New("the API is down") }
	})
	c.create("web")
	c.await("web", "held", func(s *corev1.Service) bool { return len(s.Finalizers) == 1 })
	stop()
	web := c.get("web")
	web.Status.Conditions = nil
	c.writeStatus(web)
	c.patch("web", `{"spec":{"type":"ClusterIP"}}`)
	if web = c.get("web"); contract.HasOwnedFields(web) {
		t.Fatalf("it has marks: %s", describe(web))
	}
	c.shop.set(func(s *shop) { s.fail = nil })
	c.start()
	c.await("web", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 0 })
}

//proves:known-bugs/orphans
func TestWhatHappenedWhileTheControllerWasDown(t *testing.T) {
	c := newCluster(t)
	stop := c.start()
	for _, name := range []string{"deleted", "changed", "kept", "other"} {
		c.create(name)
		c.await(name, "published", isPublished)
	}
	stop()
	c.delete("deleted")
	c.patch("changed", `{"spec":{"type":"ClusterIP"}}`)
	c.patch("other", `{"spec":{"type":"ClusterIP"}}`)
	c.patch("other", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"example.com/other"}}`)
	kept := c.get("kept")
	calls := c.shop.count("ensure", "kept")
	c.events = newEventLog()
	c.start()
	c.await("deleted", "gone", hasGone)
	c.await("changed", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 0 })
	c.await("other", "let go", func(*corev1.Service) bool { return !c.shop.holds("other") })
	c.quiet()
	if c.shop.holds("deleted") || c.shop.holds("changed") {
		t.Error("addresses are not released")
	}
	if again := c.get("kept"); again.ResourceVersion != kept.ResourceVersion ||
		c.shop.count("ensure", "kept") != calls+1 {
		t.Errorf("a start wrote on a healthy Service, or called %d times", c.shop.count("ensure", "kept")-calls)
	}
	if counts := c.events.counts(); counts["Normal "+eventEnsured] != 1 || counts["Normal "+eventEnsuring] != 1 {
		t.Errorf("a start reports Services that were published before: %v", counts)
	}
}

func TestRecreatedUnderTheSameName(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web")
	first := c.await("web", "published", isPublished)
	c.delete("web")
	c.await("web", "gone", hasGone)
	c.create("web")
	// The event follows the status.
	second := c.await("web", "published and reported", func(s *corev1.Service) bool {
		return isPublished(s) && c.events.counts()["Normal "+eventEnsured] >= 2
	})
	if first.UID == second.UID || c.events.counts()["Normal "+eventEnsured] != 2 {
		t.Errorf("events %v", c.events.counts())
	}
}

// TestAFinalizerRemovedByAUser: whoever strips the finalizer of a Service must not leak what it has while the
// controller looks on.
//
//proves:known-bugs/orphans
func TestAFinalizerRemovedByAUser(t *testing.T) {
	c := newCluster(t)
	c.start()
	for _, name := range []string{"lives", "goes", "goes-not", "turns"} {
		c.create(name)
		c.await(name, "published", isPublished)
	}
	c.patch("lives", `{"metadata":{"finalizers":null}}`)
	c.await("lives", "held again", func(s *corev1.Service) bool { return len(s.Finalizers) == 1 })

	c.shop.set(func(s *shop) { s.waits = 5 })
	c.delete("goes")
	c.awaitCalls("release", "goes", 1)
	c.patch("goes", `{"metadata":{"finalizers":null}}`)
	c.await("goes", "released though it is gone", func(s *corev1.Service) bool {
		return s == nil &&
			!c.shop.holds("goes")
	})

	c.patch("goes-not", `{"metadata":{"finalizers":["`+frameworks+`","example.com/other"]}}`)
	c.delete("goes-not")
	c.awaitCalls("release", "goes-not", 1)
	c.patch("goes-not", `{"metadata":{"finalizers":["example.com/other"]}}`)
	c.await("goes-not", "released though another holds it",
		func(s *corev1.Service) bool { return s != nil && !c.shop.holds("goes-not") })
	c.patch("goes-not", `{"metadata":{"finalizers":null}}`)

	c.delete("turns")
	c.awaitCalls("release", "turns", 1)
	c.patch("turns", `{"metadata":{"finalizers":null}}`)
	c.create("turns", ofType(corev1.ServiceTypeClusterIP))
	c.await("turns", "released though another has its name",
		func(s *corev1.Service) bool { return s != nil && !c.shop.holds("turns") })
}

//proves:service-changes/written-by-controller
func TestAStatusEditedByHandIsRestored(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web")
	web := c.await("web", "published", isPublished)
	right := web.Status.LoadBalancer
	for _, wrong := range [][]corev1.LoadBalancerIngress{nil, {{IP: "198.51.100.7"}}, {{Hostname: "example.com"}},
		{{IP: right.Ingress[0].IP}}} {
		web = c.get("web")
		web.Status.LoadBalancer.Ingress = wrong
		c.writeStatus(web)
		c.await("web", "restored", func(s *corev1.Service) bool { return sameStatus(&s.Status.LoadBalancer, &right) })
	}
}

// TestKubeVIPIsNotFoughtOver: kube-vip writes its annotation and the same status without ipMode.
//
//proves:known-bugs/own-writes
func TestKubeVIPIsNotFoughtOver(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web")
	c.await("web", "published", isPublished)
	c.quiet()
	calls := c.shop.count("ensure", "web")
	c.patch("web", `{"metadata":{"annotations":{"kube-vip.io/vipHost":"node-1"}}}`)
	web := c.get("web")
	web.Status.LoadBalancer.Ingress[0].IPMode = nil
	c.writeStatus(web)
	version := c.get("web").ResourceVersion
	c.quiet()
	if again := c.get("web"); again.ResourceVersion != version {
		t.Errorf("it was written on: %s", describe(again))
	}
	if n := c.shop.count("ensure", "web") - calls; n > 1 {
		t.Errorf("%d calls after kube-vip took the Service up", n)
	}
	if mode := c.get("web").Status.LoadBalancer.Ingress[0].IPMode; mode == nil ||
		*mode != corev1.LoadBalancerIPModeVIP {
		t.Errorf("ipMode %v", mode)
	}
}

func TestFromABackup(t *testing.T) {
	c := newCluster(t)
	c.create("web", heldBy(frameworks), annotated(contract.ServiceIPAddress, "198.51.100.7"), func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}
		s.Status.Conditions = []metav1.Condition{{Type: contract.ServiceConditionAddressPublished,
			Status: metav1.ConditionTrue, Reason: "Published", LastTransitionTime: metav1.Now()}}
	})
	c.start() // not before: the status is restored with a write of its own
	c.await("web", "given an address of its own", func(s *corev1.Service) bool {
		return isPublished(s) && s.Status.LoadBalancer.Ingress[0].IP == "203.0.113.10"
	})
	// One that was restored as another type keeps nothing of ours, and its deletion is not held up.
	c.create("plain", ofType(corev1.ServiceTypeClusterIP), heldBy(frameworks),
		annotated(contract.ServiceIPAddress, "198.51.100.7"))
	c.await("plain", "let go", func(s *corev1.Service) bool { return len(s.Finalizers)+len(s.Annotations) == 0 })
}

//proves:known-bugs/unsupported-features
func TestWhatCannotBeServed(t *testing.T) {
	const annotation = "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol"
	c := newCluster(t)
	c.start()
	c.create("web", annotated(annotation, "true"))
	refused := func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, contract.ServiceConditionAddressPublished)
		return condition != nil && condition.Reason == reasonUnsupported
	}
	web := c.await("web", "refused", refused)
	if len(web.Finalizers) != 0 || c.shop.count("ensure", "web") != 0 ||
		c.events.counts()["Warning "+eventUnsupported] != 1 {
		t.Errorf("%s, %d calls, events %v", describe(web), c.shop.count("ensure", "web"), c.events.all())
	}
	c.patch("web", `{"metadata":{"annotations":{"`+annotation+`":null}}}`)
	c.await("web", "published", isPublished)
	// What has an address keeps it.
	c.patch("web", `{"metadata":{"annotations":{"`+annotation+`":"true"}}}`)
	c.quiet()
	if web = c.get("web"); !isPublished(web) || !c.shop.holds("web") {
		t.Errorf("its address was taken: %s", describe(web))
	}
	// What was refused and changes its type keeps no condition.
	c.create("api", annotated(annotation, "true"))
	c.await("api", "refused", refused)
	c.patch("api", `{"spec":{"type":"ClusterIP"}}`)
	c.await("api", "let go", func(s *corev1.Service) bool { return len(s.Status.Conditions) == 0 })
}
