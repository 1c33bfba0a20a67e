//go:build linux

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
)

// Addresses of the owner's block that Services ask for, and one that is refused to a Service that has another.
var (
	byAnnotation = netip.MustParseAddr("192.0.2.3")
	bySpec       = netip.MustParseAddr("192.0.2.4")
	tooLate      = netip.MustParseAddr("192.0.2.5")
)

// addressKinds differ in the address that they get.
func addressKinds() []kind {
	return []kind{
		{"loadBalancerClass", func(r *rig) { r.create(classService()) }, checkClass},
		{"dedicated block", func(r *rig) {
			r.create(loadBalancer("dedicated",
				annotated(contract.ServiceIPBlockSize, "/30")))
		}, checkDedicated},
		{"shared block", func(r *rig) {
			r.create(loadBalancer("pooled-1", shared()))
			r.create(loadBalancer("pooled-2", shared()))
		}, checkShared},
		//proves:service-changes/other-address
		{"own block", prepareOwn, checkOwn},
		//proves:service-changes/own-address
		{"loadBalancerIP", func(r *rig) { r.create(loadBalancer("requesting")) }, checkLoadBalancerIP},
		//proves:service-changes/ip-retain
		//proves:service-changes/recreate-retained
		{"retained block", func(r *rig) { r.create(retainedService()) }, checkRetained},
	}
}

// checkShared: two Services have two addresses of one block.
func checkShared(r *rig) {
	first := r.published("pooled-1")
	second := r.published("pooled-2")
	block := r.blockOf(r.get("pooled-1"))
	r.tagged(block, contract.TagPool, "default")
	if other := r.blockOf(r.get("pooled-2")); first == second || other.ID != block.ID {
		r.Errorf("the addresses are %s of %s and %s of %s, want two of one block", first, block.CIDR, second,
			other.CIDR)
	}
	for i, address := range []netip.Addr{first, second} {
		r.answered(tcp(address, 80))
		r.remove(fmt.Sprintf("pooled-%d", i+1))
	}
}

// tagged fails unless a block has the cluster's tags and another one.
func (r *rig) tagged(b cluster.AccountBlock, name, value string) {
	r.Helper()
	for _, want := range []cluster.AccountTag{
		{Name: contract.TagUsage, Value: contract.TagUsageAuto}, {Name: contract.TagCluster, Value: r.uid},
		{Name: name, Value: value},
	} {
		if !slices.Contains(b.Tags, want) {
			r.Errorf("block %s lacks the tag %s=%s: %v", b.CIDR, want.Name, want.Value, b.Tags)
		}
	}
}

func classService() *corev1.Service {
	return loadBalancer("class", shared(),
		func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To(contract.LoadBalancerClass) })
}

// checkClass: our class is served, and one that is not ours gets nothing.
func checkClass(r *rig) {
	foreign := loadBalancer("foreign-class",
		func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/other") })
	r.create(foreign)
	r.answered(tcp(r.published("class"), 80))
	if !slices.Contains(r.get("class").Finalizers, contract.LoadBalancerFinalizer) {
		r.Errorf("the Service has the finalizers %v, want %s", r.get("class").Finalizers,
			contract.LoadBalancerFinalizer)
	}
	if s := r.get("foreign-class"); publishedAddress(s).IsValid() || len(s.Finalizers) > 0 ||
		len(s.Status.Conditions) > 0 {
		r.Errorf("a Service of another class was touched: finalizers %v, status %+v", s.Finalizers, s.Status)
	}
	r.remove("foreign-class")
	r.remove("class")
}

func checkDedicated(r *rig) {
	address := r.published("dedicated")
	s := r.get("dedicated")
	block := r.blockOf(s)
	r.tagged(block, contract.TagService, contract.ServiceTag(s.Namespace, s.Name))
	if cidr := netip.MustParsePrefix(block.CIDR); cidr.Bits() != 30 || cidr.Addr().Next().Next() != address {
		r.Errorf("the address is %s of block %s, want the third of a /30", address, cidr)
	}
	r.answered(tcp(address, 80))
	r.remove("dedicated")
}

// prepareOwn creates two Services that ask for addresses of the owner's block, in the two ways that there are.
func prepareOwn(r *rig) {
	r.create(loadBalancer("own-1", annotated(contract.ServiceIPBlockID, ownBlockID, contract.ServiceRequestedIP,
		byAnnotation.String())))
	r.create(loadBalancer("own-2", annotated(contract.ServiceIPBlockID, ownBlockID),
		func(s *corev1.Service) { s.Spec.LoadBalancerIP = bySpec.String() }))
}

// checkOwn: a block that the owner brings is used and left as it was; its addresses are given for good.
func checkOwn(r *rig) {
	r.publishedAs("own-1", func(a netip.Addr) bool { return a == byAnnotation })
	r.publishedAs("own-2", func(a netip.Addr) bool { return a == bySpec })
	before := r.blockOf(r.get("own-1"))
	r.answered(tcp(byAnnotation, 80))
	w := r.watching(tcp(bySpec, 80))
	w.during("address_refused", func() {
		r.patch("own-2", spec("loadBalancerIP", tooLate.String()))
		r.until(answerLimit, "the address is refused", func() (bool, string) {
			s := r.get("own-2")
			return slices.ContainsFunc(s.Status.Conditions,
				func(c metav1.Condition) bool { return c.Reason == "AddressRefused" }), s.Status.String()
		})
	})
	w.harmless()
	for _, name := range []string{"own-1", "own-2"} {
		r.remove(name)
		r.removed(name)
	}
	for _, b := range r.blocks() {
		if b.ID == ownBlockID && (!slices.Equal(b.Tags, before.Tags) || b.Status != "unassigned") {
			r.Errorf("the owner's block is %s with the tags %v, want it unassigned, as it was found, with %v", b.Status,
				b.Tags, before.Tags)
		}
	}
}

// checkLoadBalancerIP: the Service moves to the address of its own block that spec.loadBalancerIP asks for.
func checkLoadBalancerIP(r *rig) {
	before := r.published("requesting")
	r.answered(tcp(before, 80))
	r.withdraw(ccm, "requesting")
	begun := time.Now()
	after := before.Next()
	r.patch("requesting", spec("loadBalancerIP", after.String()))
	r.publishedAs("requesting", func(a netip.Addr) bool { return a == after })
	r.answeredAfterMove(tcp(after, 80))
	r.figure("address_changed_answered_after", time.Since(begun), "s")
	r.until(answerLimit, fmt.Sprintf("%s is silent", before), func() (bool, string) {
		all := r.tried(tcp(before, 80), 1, refusal)
		return !all[0].OK, all[0].Body
	})
	r.remove("requesting")
}

func retainedService() *corev1.Service {
	return loadBalancer("retained", annotated(contract.ServiceIPRetain, contract.TagTrue))
}

// checkRetained: a Service made again has its address again; given up, the block goes.
func checkRetained(r *rig) {
	address := r.published("retained")
	t := tcp(address, 80)
	block := r.blockOf(r.get("retained"))
	w := r.watching(t)
	w.during("retained_recreated", func() {
		r.remove("retained")
		r.removed("retained")
		kept := slices.ContainsFunc(r.blocks(), func(b cluster.AccountBlock) bool { return b.ID == block.ID })
		if !kept {
			r.Errorf("block %s went with its Service", block.CIDR)
		}
		r.create(retainedService())
		r.publishedAs("retained", func(a netip.Addr) bool { return a == address })
		r.answered(t)
	})
	w.during("retain_off", func() {
		r.patch("retained", annotation(contract.ServiceIPRetain, nil))
		r.until(answerLimit, "the block is not marked as retained any more", func() (bool, string) {
			tags := r.blockOf(r.get("retained")).Tags
			return !slices.ContainsFunc(tags, func(t cluster.AccountTag) bool { return t.Name == contract.TagRetain }),
				fmt.Sprint(tags)
		})
	})
	w.harmless("retained_recreated")
	r.remove("retained")
}
