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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
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
		{"loadBalancerClass", func(h *harness) { h.create(classService()) }, checkClass},
		{"dedicated block", func(h *harness) {
			h.create(loadBalancer("dedicated",
				annotated(contract.ServiceIPBlockSize, "/30")))
		}, checkDedicated},
		{"shared block", func(h *harness) {
			h.create(loadBalancer("pooled-1", shared()))
			h.create(loadBalancer("pooled-2", shared()))
		}, checkShared},
		//proves:service-changes/other-address
		{"own block", prepareOwn, checkOwn},
		//proves:service-changes/own-address
		{"loadBalancerIP", func(h *harness) { h.create(loadBalancer("requesting")) }, checkLoadBalancerIP},
		//proves:service-changes/ip-retain
		//proves:service-changes/recreate-retained
		{"retained block", func(h *harness) { h.create(retainedService()) }, checkRetained},
	}
}

// checkShared: two Services have two addresses of one block.
func checkShared(h *harness) {
	first := h.published("pooled-1")
	second := h.published("pooled-2")
	block := h.blockOf(h.get("pooled-1"))
	h.tagged(block, contract.TagPool, "default")
	if other := h.blockOf(h.get("pooled-2")); first == second || other.ID != block.ID {
		h.Errorf("the addresses are %s of %s and %s of %s, want two of one block", first, block.CIDR, second,
			other.CIDR)
	}
	for i, address := range []netip.Addr{first, second} {
		h.answered(tcp(address, 80))
		h.remove(fmt.Sprintf("pooled-%d", i+1))
	}
}

// tagged fails unless a block has the cluster's tags and another one.
func (h *harness) tagged(b cluster.AccountBlock, name, value string) {
	h.Helper()
	for _, want := range []cluster.AccountTag{
		{Name: contract.TagUsage, Value: contract.TagUsageAuto}, {Name: contract.TagCluster, Value: h.uid},
		{Name: name, Value: value},
	} {
		if !slices.Contains(b.Tags, want) {
			h.Errorf("block %s lacks the tag %s=%s: %v", b.CIDR, want.Name, want.Value, b.Tags)
		}
	}
}

func classService() *corev1.Service {
	return loadBalancer("class", shared(),
		func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To(contract.LoadBalancerClass) })
}

// checkClass: our class is served, and one that is not ours gets nothing.
func checkClass(h *harness) {
	foreign := loadBalancer("foreign-class",
		func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/other") })
	h.create(foreign)
	h.answered(tcp(h.published("class"), 80))
	if !slices.Contains(h.get("class").Finalizers, contract.LoadBalancerFinalizer) {
		h.Errorf("the Service has the finalizers %v, want %s", h.get("class").Finalizers,
			contract.LoadBalancerFinalizer)
	}
	if s := h.get("foreign-class"); publishedAddress(s).IsValid() || len(s.Finalizers) > 0 ||
		len(s.Status.Conditions) > 0 {
		h.Errorf("a Service of another class was touched: finalizers %v, status %+v", s.Finalizers, s.Status)
	}
	h.remove("foreign-class")
	h.remove("class")
}

func checkDedicated(h *harness) {
	address := h.published("dedicated")
	s := h.get("dedicated")
	block := h.blockOf(s)
	h.tagged(block, contract.TagService, contract.ServiceTag(s.Namespace, s.Name))
	if cidr := netip.MustParsePrefix(block.CIDR); cidr.Bits() != 30 || cidr.Addr().Next().Next() != address {
		h.Errorf("the address is %s of block %s, want the third of a /30", address, cidr)
	}
	h.answered(tcp(address, 80))
	h.remove("dedicated")
}

// prepareOwn creates two Services that ask for addresses of the owner's block, in the two ways that there are.
func prepareOwn(h *harness) {
	h.create(loadBalancer("own-1", annotated(contract.ServiceIPBlock, ownObject, contract.ServiceRequestedIP,
		byAnnotation.String())))
	h.create(loadBalancer("own-2", annotated(contract.ServiceIPBlock, ownObject),
		func(s *corev1.Service) { s.Spec.LoadBalancerIP = bySpec.String() }))
}

// checkOwn: a block that the owner brings is used and left as it was; its addresses are given for good.
func checkOwn(h *harness) {
	h.publishedAs("own-1", func(a netip.Addr) bool { return a == byAnnotation })
	h.publishedAs("own-2", func(a netip.Addr) bool { return a == bySpec })
	before := h.blockOf(h.get("own-1"))
	h.answered(tcp(byAnnotation, 80))
	w := h.watching(tcp(bySpec, 80))
	w.during("address_refused", func() {
		h.patch("own-2", spec("loadBalancerIP", tooLate.String()))
		h.until(answerLimit, "the address is refused", func() (bool, string) {
			s := h.get("own-2")
			return slices.ContainsFunc(s.Status.Conditions,
				func(c metav1.Condition) bool { return c.Reason == "AddressRefused" }), s.Status.String()
		})
	})
	w.harmless()
	for _, name := range []string{"own-1", "own-2"} {
		h.remove(name)
		h.removed(name)
	}
	for _, b := range h.blocks() {
		if b.ID == ownBlockID && (!slices.Equal(b.Tags, before.Tags) || b.Status != "unassigned") {
			h.Errorf("the owner's block is %s with the tags %v, want it unassigned, as it was found, with %v", b.Status,
				b.Tags, before.Tags)
		}
	}
}

// checkLoadBalancerIP: the Service moves to the address of its own block that spec.loadBalancerIP asks for.
func checkLoadBalancerIP(h *harness) {
	before := h.published("requesting")
	h.answered(tcp(before, 80))
	h.withdraw(ccm, "requesting")
	begun := time.Now()
	after := before.Next()
	h.patch("requesting", spec("loadBalancerIP", after.String()))
	h.publishedAs("requesting", func(a netip.Addr) bool { return a == after })
	h.answeredAfterMove(tcp(after, 80))
	h.figure("address_changed_answered_after", time.Since(begun), "s")
	h.until(answerLimit, fmt.Sprintf("%s is silent", before), func() (bool, string) {
		all := h.tried(tcp(before, 80), 1, refusal)
		return !all[0].OK, all[0].Body
	})
	h.remove("requesting")
}

func retainedService() *corev1.Service {
	return loadBalancer("retained", annotated(contract.ServiceIPRetain, contract.TagTrue))
}

// checkRetained: a Service made again has its address again; given up, the block goes.
func checkRetained(h *harness) {
	address := h.published("retained")
	t := tcp(address, 80)
	block := h.blockOf(h.get("retained"))
	w := h.watching(t)
	w.during("retained_recreated", func() {
		h.remove("retained")
		h.removed("retained")
		kept := slices.ContainsFunc(h.blocks(), func(b cluster.AccountBlock) bool { return b.ID == block.ID })
		if !kept {
			h.Errorf("block %s went with its Service", block.CIDR)
		}
		h.create(retainedService())
		h.publishedAs("retained", func(a netip.Addr) bool { return a == address })
		h.answered(t)
	})
	w.during("retain_off", func() {
		h.patch("retained", annotation(contract.ServiceIPRetain, nil))
		h.until(answerLimit, "the block is not marked as retained any more", func() (bool, string) {
			tags := h.blockOf(h.get("retained")).Tags
			return !slices.ContainsFunc(tags, func(t cluster.AccountTag) bool { return t.Name == contract.TagRetain }),
				fmt.Sprint(tags)
		})
	})
	w.harmless("retained_recreated")
	h.remove("retained")
}
