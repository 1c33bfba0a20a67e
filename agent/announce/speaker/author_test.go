//go:build linux

package speaker

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// reserved is an address of the shared block that belongs to another Service, vacant one that belongs to none.
const reserved, vacant = "203.0.113.4", "203.0.113.5"

// shared is the block of the addresses of this file. Services shop/web and shop/api have one together.
func shared(change ...func(*v1beta1.IPBlock)) *v1beta1.IPBlock {
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "default-shared-1"}}
	object.Status = v1beta1.IPBlockStatus{CIDR: "203.0.113.0/29", Gateway: "203.0.113.1",
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue}},
		Allocations: &[]v1beta1.Allocation{
			{Address: address.String(), Services: []v1beta1.ServiceReference{
				{Namespace: "shop", Name: "web", UID: "u1"}, {Namespace: "shop", Name: "api", UID: "u2"}}},
			{Address: reserved, Services: []v1beta1.ServiceReference{{Namespace: "bank", Name: "web", UID: "u9"}}},
		}}
	for _, c := range change {
		c(object)
	}
	return object
}

// announced are the addresses that a node announces for Services.
func announced(known *blocks.Known, services ...*corev1.Service) (all []string) {
	in := healthy(func(in *Inputs) {
		in.Services = services
		in.Allocated = known.Allocated
		in.LocalReady = func(int32) bool { return true }
	})
	facts := in.Facts()
	for a, may := range facts.Wanted {
		if may && !facts.Outside[a] {
			all = append(all, a.String())
		}
	}
	return all
}

// TestWhatAuthorsWrite: an author of Services, who may write each of their fields but the status, has no node announce
// an address that no IPBlock gives to the Service, not even with the right to write the status. EndpointSlices are not
// read: kube-proxy is asked for local endpoints, and whatever it answers is tried.
func TestWhatAuthorsWrite(t *testing.T) {
	known := &blocks.Known{}
	known.See(shared())
	tried := 0
	for _, target := range []string{reserved, vacant, "203.0.113.1", "203.0.113.2", "198.51.100.7"} {
		for name, write := range writes(target) {
			// all at once with what makes an address count, on a Service of the author's own
			for _, base := range []*corev1.Service{web(), claim(target)} {
				write(base)
				tried++
				for _, got := range announced(known, base) {
					if got != address.String() {
						t.Errorf("%s = %s: announces %s", name, target, got)
					}
				}
			}
		}
	}
	t.Logf("%d wrong Services", tried)
	if tried < 300 {
		t.Errorf("%d tried, want each field", tried)
	}
}

// claim is a Service of an author on which an address stands as the controller writes it, with the status, too.
func claim(target string) *corev1.Service {
	return web(annotated(contract.ServiceIPAddress, target), func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: target}}
	})
}

// writes sets each field of a Service's metadata and spec that holds text, and each of our annotations, to an address.
func writes(target string) map[string]func(*corev1.Service) {
	all := map[string]func(*corev1.Service){}
	for _, part := range []string{"ObjectMeta", "Spec"} {
		kind, _ := reflect.TypeFor[corev1.Service]().FieldByName(part)
		for i := range kind.Type.NumField() {
			field := kind.Type.Field(i)
			all[part+"."+field.Name] = func(s *corev1.Service) {
				set(reflect.ValueOf(s).Elem().FieldByName(part).Field(i), target)
				s.Namespace = "shop" // the author's
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.DeletionTimestamp = nil
			}
		}
	}
	for _, key := range append(contract.OwnedServiceAnnotations(), contract.ServiceIPBlock,
		contract.ServiceIPAllocation, contract.ServiceIPRetain, contract.KubeVIPAddresses,
		"phoenixnap.com/shared-address", discoveryv1.LabelServiceName) {
		all["annotation "+key] = annotated(key, target)
		all["label "+key] = func(s *corev1.Service) { s.Labels = map[string]string{key: target} }
	}
	return all
}

// set writes an address into a value, wherever text fits.
func set(v reflect.Value, target string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(target)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(30001)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem(), target)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0), target)
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.String {
			return
		}
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(reflect.ValueOf("address"), reflect.ValueOf(target))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				set(v.Field(i), target)
			}
		}
	default:
	}
}

// TestWhoseAddress: an address is announced for each Service that the IPBlock names with it, and for no other.
func TestWhoseAddress(t *testing.T) {
	api := web(func(s *corev1.Service) {
		s.Name = "api"
		s.UID = "u2"
		s.Annotations[contract.ServiceIPOwner] = "u2"
	})
	published := func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address.String()}}
	}
	lost := func(o *v1beta1.IPBlock) { o.Status = v1beta1.IPBlockStatus{} }
	for name, tc := range map[string]struct {
		objects  []*v1beta1.IPBlock
		services []*corev1.Service
		want     string
	}{
		"its own":             {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{web()}, "[203.0.113.3]"},
		"of the other":        {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{api}, "[203.0.113.3]"},
		"of both":             {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{api, web()}, "[203.0.113.3]"},
		"of both, one local":  {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{web(), stranger(), api}, "[203.0.113.3]"},
		"a stranger's":        {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{stranger()}, "[]"},
		"a stranger's, first": {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{stranger(), web()}, "[203.0.113.3]"},
		"created again": {[]*v1beta1.IPBlock{shared()}, []*corev1.Service{web(func(s *corev1.Service) {
			s.UID = types.UID("u3")
			s.Annotations[contract.ServiceIPOwner] = "u3"
		}, published)}, "[]"},
		"the block is not assigned": {[]*v1beta1.IPBlock{shared(func(o *v1beta1.IPBlock) {
			o.Status.Conditions[0].Status = metav1.ConditionFalse
		})}, []*corev1.Service{web(published)}, "[]"},
		"nothing is known, published":     {nil, []*corev1.Service{web(published)}, "[203.0.113.3]"},
		"nothing is known, not published": {nil, []*corev1.Service{web()}, "[]"},
		"the status is lost, published": {[]*v1beta1.IPBlock{shared(lost)}, []*corev1.Service{web(published)},
			"[203.0.113.3]"},
		"the status was lost meanwhile": {[]*v1beta1.IPBlock{shared(), shared(lost)}, []*corev1.Service{web()},
			"[203.0.113.3]"},
		"and a stranger's": {[]*v1beta1.IPBlock{shared(), shared(lost)}, []*corev1.Service{stranger(published)}, "[]"},
	} {
		known := &blocks.Known{}
		for _, o := range tc.objects {
			known.See(o)
		}
		if got := fmt.Sprint(announced(known, tc.services...)); got != tc.want {
			t.Errorf("%s: announces %s, want %s", name, got, tc.want)
		}
	}
	if a := netip.MustParseAddr("203.0.113.3"); a != address {
		t.Errorf("the tests mean %s", address)
	}
}

// stranger is a Service of another namespace that claims the address.
func stranger(change ...func(*corev1.Service)) *corev1.Service {
	return web(append(change, func(s *corev1.Service) { s.Namespace = "thief" })...)
}
