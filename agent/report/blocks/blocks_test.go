package blocks_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var address = netip.MustParseAddr("203.0.113.10")

// block is an assigned one of which Service shop/web has an address.
func block(name string, change ...func(*v1beta1.IPBlock)) *v1beta1.IPBlock {
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeService}, Status: v1beta1.IPBlockStatus{
			CIDR: "203.0.113.8/29", Gateway: "203.0.113.9",
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue}},
			Allocations: &[]v1beta1.Allocation{{Address: address.String(),
				Services: []v1beta1.ServiceReference{{Namespace: "shop", Name: "web", UID: "u1"}}}},
		}}
	for _, c := range change {
		c(object)
	}
	return object
}

// waits is a block whose Service says what it waits for.
func waits(reason string) func(*v1beta1.IPBlock) {
	return func(o *v1beta1.IPBlock) {
		o.Status.Conditions[0].Status = metav1.ConditionFalse
		o.Status.Conditions[0].Reason = reason
	}
}

func pooled(o *v1beta1.IPBlock) { o.Spec.Purpose = v1beta1.PurposeShared }
func unused(o *v1beta1.IPBlock) { o.Status.Allocations = &[]v1beta1.Allocation{} }
func blank(o *v1beta1.IPBlock)  { o.Status = v1beta1.IPBlockStatus{} }
func silent(o *v1beta1.IPBlock) { o.Status.Allocations = nil }

func assigned(status metav1.ConditionStatus) func(*v1beta1.IPBlock) {
	return func(o *v1beta1.IPBlock) {
		o.Status.Conditions[0].Status = status
		if status == metav1.ConditionFalse {
			o.Status.Conditions[0].Reason = "BlockAssigning"
		}
	}
}

func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1",
		Annotations: map[string]string{contract.ServiceIPAddress: address.String(),
			contract.ServiceIPBlockCIDR: "203.0.113.8/29", contract.ServiceIPGateway: "203.0.113.9"}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{IP: address.String()}}}}}
	for _, c := range change {
		c(s)
	}
	return s
}

// TestWhatStays: what an object said counts while its definition, its status or itself is gone, but not when the block
// was given up before.
func TestWhatStays(t *testing.T) {
	const mine, theirs = "[203.0.113.8/29] Allocated", "[203.0.113.8/29] NotAllocated"
	words := map[blocks.Answer]string{blocks.Unknown: "Unknown", blocks.Allocated: "Allocated",
		blocks.NotAllocated: "NotAllocated"}
	see := func(change ...func(*v1beta1.IPBlock)) func(*blocks.Known) {
		return func(k *blocks.Known) { k.See(block("svc-u1", change...)) }
	}
	other := func(change ...func(*v1beta1.IPBlock)) func(*blocks.Known) {
		return func(k *blocks.Known) { k.See(block("block-1", change...)) }
	}
	lose := func(k *blocks.Known) { k.Lose("svc-u1") }
	type story []func(*blocks.Known)
	for name, tc := range map[string]struct {
		story story
		want  string
	}{
		"nothing":                               {story{}, "[] Unknown"},
		"in use":                                {story{see()}, mine},
		"another has it":                        {story{see(unused)}, theirs},
		"not assigned yet":                      {story{see(assigned(metav1.ConditionFalse))}, "[] NotAllocated"},
		"not known whether assigned":            {story{see(assigned(metav1.ConditionUnknown))}, mine},
		"not known, but the Service waits":      {story{see(waits("BlockInvisible"))}, mine},
		"on its way out":                        {story{see(waits("BlockUnassigning"))}, "[] NotAllocated"},
		"a shared one that waits":               {story{see(waits("BlockInvisible"), pooled)}, "[] NotAllocated"},
		"not known, not in use":                 {story{see(unused, assigned(metav1.ConditionUnknown))}, "[] NotAllocated"},
		"closed":                                {story{see(closed)}, "[] NotAllocated"},
		"of another network":                    {story{see(elsewhere)}, "[] Allocated"},
		"unreadable":                            {story{see(damaged)}, "[] Unknown"},
		"became unreadable":                     {story{see(), see(damaged)}, mine},
		"an unreadable address":                 {story{see(), see(misspelt)}, mine},
		"restored without its status":           {story{see(blank)}, "[] Unknown"},
		"allocations not made again":            {story{see(silent)}, "[203.0.113.8/29] Unknown"},
		"lost its status":                       {story{see(), see(blank)}, mine},
		"lost its allocations":                  {story{see(), see(silent)}, mine},
		"lost its allocations, unused":          {story{see(unused), see(silent)}, "[203.0.113.8/29] Unknown"},
		"gone with its definition":              {story{see(), lose}, mine},
		"gone with its definition, unused":      {story{see(unused), lose}, "[] Unknown"},
		"given up":                              {story{see(), see(unused, assigned(metav1.ConditionFalse)), lose}, "[] Unknown"},
		"created again, empty":                  {story{see(), lose, see(blank)}, mine},
		"created again":                         {story{see(), lose, see(unused)}, theirs},
		"created again by another name, empty":  {story{see(), lose, other(blank)}, mine},
		"created again by another name":         {story{see(), lose, other(unused)}, theirs},
		"made again, not said whether assigned": {story{see(), lose, other(unsaid)}, mine},
		"made again, seen before the deletion":  {story{see(), other(unsaid), lose}, mine},
		"made again, and then closed":           {story{see(), lose, other(unsaid), other(closed)}, "[] NotAllocated"},
		"new, not said whether assigned":        {story{see(unsaid)}, "[] NotAllocated"},
		"not said any more whether assigned":    {story{see(), see(unsaid)}, mine},
		"two objects of one block":              {story{see(), other(silent)}, mine},
		"lost by one that never was":            {story{lose}, "[] Unknown"},
	} {
		known := &blocks.Known{}
		for _, step := range tc.story {
			step(known)
		}
		var network []netip.Prefix
		for _, b := range known.Network(v1beta1.DefaultNetwork, nil) {
			network = append(network, b.CIDR)
		}
		if got := fmt.Sprint(network, " ", words[known.Allocated(service(), address)]); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// unsaid is an object of which the controller has just made the allocations again.
func unsaid(o *v1beta1.IPBlock) { o.Status.Conditions = nil }

func closed(o *v1beta1.IPBlock) {
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionAllocatable,
		Status: metav1.ConditionFalse})
}

func damaged(o *v1beta1.IPBlock) { o.Status.CIDR = "x" }

func misspelt(o *v1beta1.IPBlock) { (*o.Status.Allocations)[0].Address = "203.0.113.300" }

func elsewhere(o *v1beta1.IPBlock) { o.Spec.Attachment.Name = "phoenix" }

// TestWhose: namespace, name and UID have to be those of the Service.
func TestWhose(t *testing.T) {
	anyUID := func(o *v1beta1.IPBlock) { (*o.Status.Allocations)[0].Services[0].UID = "" }
	for name, tc := range map[string]struct {
		object  *v1beta1.IPBlock
		service *corev1.Service
		address string
		want    blocks.Answer
	}{
		"its own":       {block("b"), service(), "203.0.113.10", blocks.Allocated},
		"another":       {block("b"), service(), "203.0.113.11", blocks.NotAllocated},
		"elsewhere":     {block("b"), service(), "198.51.100.1", blocks.NotAllocated},
		"other name":    {block("b"), service(func(s *corev1.Service) { s.Name = "api" }), "203.0.113.10", blocks.NotAllocated},
		"other space":   {block("b"), service(func(s *corev1.Service) { s.Namespace = "x" }), "203.0.113.10", blocks.NotAllocated},
		"other UID":     {block("b"), service(func(s *corev1.Service) { s.UID = "u2" }), "203.0.113.10", blocks.NotAllocated},
		"any UID":       {block("b", anyUID), service(), "203.0.113.10", blocks.Allocated},
		"of a server":   {block("b", ofServer), service(), "203.0.113.10", blocks.NotAllocated},
		"unclear, mine": {block("b", silent), service(), "203.0.113.10", blocks.Unknown},
	} {
		known := &blocks.Known{}
		known.See(tc.object)
		if got := known.Allocated(tc.service, netip.MustParseAddr(tc.address)); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func ofServer(o *v1beta1.IPBlock) {
	(*o.Status.Allocations)[0] = v1beta1.Allocation{Address: address.String(), Server: "0123456789abcdef01234567"}
}

// TestBlocksOfServices: while no IPBlock says anything, a block around a published address counts, and no other.
func TestBlocksOfServices(t *testing.T) {
	annotated := func(key, value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Annotations[key] = value }
	}
	for name, tc := range map[string]struct {
		known  []*v1beta1.IPBlock
		change func(*corev1.Service)
		want   int
	}{
		"published":         {nil, func(*corev1.Service) {}, 1},
		"a blank IPBlock":   {[]*v1beta1.IPBlock{block("b", blank)}, func(*corev1.Service) {}, 1},
		"IPBlocks speak":    {[]*v1beta1.IPBlock{block("b", elsewhere)}, func(*corev1.Service) {}, 0},
		"not published":     {nil, func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} }, 0},
		"another published": {nil, annotated(contract.ServiceIPAddress, "203.0.113.11"), 0},
		"the address is outside": {nil, func(s *corev1.Service) {
			s.Annotations[contract.ServiceIPBlockCIDR] = "203.0.113.16/29"
			s.Annotations[contract.ServiceIPGateway] = "203.0.113.17"
		}, 0},
		"too large":              {nil, annotated(contract.ServiceIPBlockCIDR, "203.0.0.0/16"), 0},
		"everything":             {nil, annotated(contract.ServiceIPBlockCIDR, "0.0.0.0/0"), 0},
		"the gateway is outside": {nil, annotated(contract.ServiceIPGateway, "198.51.100.1"), 0},
		"no block":               {nil, annotated(contract.ServiceIPBlockCIDR, ""), 0},
	} {
		known := &blocks.Known{}
		for _, o := range tc.known {
			known.See(o)
		}
		if got := known.Network(v1beta1.DefaultNetwork, []*corev1.Service{service(tc.change)}); len(got) != tc.want {
			t.Errorf("%s: %v, want %d", name, got, tc.want)
		}
	}
}

// TestBlocksOfEachNetwork: a block is one of the network that its object names, else of the default one.
func TestBlocksOfEachNetwork(t *testing.T) {
	known := &blocks.Known{}
	for name, network := range map[string]string{"a": "", "b": "second"} {
		o := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.Spec.Attachment.Name = network
		o.Status.CIDR = map[string]string{"a": "192.0.2.0/29", "b": "203.0.113.0/29"}[name]
		o.Status.Gateway = map[string]string{"a": "192.0.2.1", "b": "203.0.113.1"}[name]
		o.Status.Allocations = &[]v1beta1.Allocation{}
		o.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue}}
		known.See(o)
	}
	for network, want := range map[string]string{v1beta1.DefaultNetwork: "192.0.2.0/29", "second": "203.0.113.0/29",
		"third": ""} {
		got := known.Network(network, nil)
		if len(got) > 1 || (len(got) == 0) != (want == "") || want != "" && got[0].CIDR.String() != want {
			t.Errorf("network %q has %v, want %q", network, got, want)
		}
	}
}
