package plan_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// bearer is the Service shop/web with a UID and a type.
func bearer(uid string, kind corev1.ServiceType, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{}
	s.Namespace = "shop"
	s.Name = "web"
	s.UID = "new"
	if uid != "" {
		s.UID = "held"
	}
	s.Spec.Type = kind
	for _, c := range change {
		c(s)
	}
	return s
}

func TestKeepsAddress(t *testing.T) {
	const held = "held"
	class := func(name string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &name }
	}
	finalizer := func(name string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Finalizers = []string{name} }
	}
	other := func(s *corev1.Service) { s.Namespace = "elsewhere" }
	const balancer, internal = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	for name, test := range map[string]struct {
		service *corev1.Service
		want    bool
	}{
		"itself":                          {bearer(held, balancer), true},
		"its successor":                   {bearer("", balancer), true},
		"its successor, of our class":     {bearer("", balancer, class(contract.LoadBalancerClass)), true},
		"its successor, of another class": {bearer("", balancer, class("example.com/other")), false},
		"its successor, of another type":  {bearer("", internal), false},
		"its successor, of another type, with a copied finalizer": {
			bearer("", internal, finalizer(servicehelper.LoadBalancerCleanupFinalizer)), false},
		"itself, released":   {bearer(held, internal), false},
		"itself, to release": {bearer(held, internal, finalizer(servicehelper.LoadBalancerCleanupFinalizer)), true},
		"itself, of our class, to release": {
			bearer(held, internal, finalizer(contract.LoadBalancerFinalizer)), true},
		"itself, with the finalizer of another class": {bearer(held, balancer, class("example.com/other"),
			finalizer(servicehelper.LoadBalancerCleanupFinalizer)), false},
		"of another namespace": {bearer(held, balancer, other), false},
	} {
		h := ipblock.Holder{Namespace: "shop", Name: "web", UID: held}
		if got := plan.KeepsAddress(test.service, h); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
		l := ledger29(nil, func(l *ipblock.Ledger) { l.Held = map[netip.Addr]ipblock.Holder{addr("203.0.113.10"): h} })
		left := plan.Observed{Services: []*corev1.Service{test.service}}.LeftBehind(l)
		if (len(left) == 0) != test.want {
			t.Errorf("%s: left behind are %v", name, left)
		}
	}
}

// TestPublishedBlockIsNotEmpty: a block without a ledger is empty only if no Service that is served has an address of
// it.
func TestPublishedBlockIsNotEmpty(t *testing.T) {
	claim := func(s *corev1.Service) {
		s.Annotations = map[string]string{
			contract.ServiceIPAddress: "203.0.113.10", contract.ServiceIPOwner: string(s.UID)}
	}
	copied := func(s *corev1.Service) {
		claim(s)
		s.Annotations[contract.ServiceIPOwner] = "another"
	}
	status := func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
	}
	const balancer, internal = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	for name, test := range map[string]struct {
		service *corev1.Service
		want    bool
	}{
		"annotation":                    {bearer("", balancer, claim), false},
		"status":                        {bearer("", balancer, status), false},
		"annotation of another Service": {bearer("", balancer, copied), true},
		"of another type":               {bearer("", internal, claim, status), true},
		"no address":                    {bearer("", balancer), true},
	} {
		o := plan.Observed{Service: &corev1.Service{}, Owner: network.Owner{Cluster: pool.Cluster},
			Services: []*corev1.Service{test.service},
			Records:  ipblock.Records{{Purchase: ipblock.Purchase{BlockID: ledger29(nil).BlockID, Time: noon}}}}
		o.Sightings = []network.Sighting{{Block: block("a", network.Assigned,
			func(b *network.Block) { b.Tags = pool.Tags() })}}
		if got := len(o.EmptyPool()) == 1; got != test.want {
			t.Errorf("%s: empty is %t, want %t", name, got, test.want)
		}
		own := block("own", network.Assigned, cidr("203.0.113.16/29"), func(b *network.Block) {
			b.Tags = plan.OwnerOf(test.service, pool.Cluster).Tags()
		})
		o.Blocks = []network.Block{own}
		if len(o.EmptyPool()) != 1 {
			t.Errorf("%s, of a Service with a block of its own: not empty", name)
		}
	}
}

// TestBlocksOfThePoolMatterToThoseWhoShare: what matters to a Service is read again by its ID before the account is
// changed, so a Service with a block of its own would pay for each block of the pool.
func TestBlocksOfThePoolMatterToThoseWhoShare(t *testing.T) {
	shared := block("a", network.Assigned, func(b *network.Block) { b.Tags = pool.Tags() })
	for _, wants := range []bool{true, false} {
		o := plan.Observed{Service: &corev1.Service{}, Holder: holder("web"),
			Owner: network.Owner{Cluster: pool.Cluster, Namespace: "shop", Name: "web"}}
		o.WantsPool = wants
		if got := o.Relevant(shared); got != wants {
			t.Errorf("wants the pool: %t; its block matters: %t", wants, got)
		}
	}
}
