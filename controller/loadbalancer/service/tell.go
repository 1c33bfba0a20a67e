package service

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// wasTold reports whether the balancer has already sent an event for its error.
func wasTold(err error) bool {
	var refusal *plan.Refusal
	return errors.As(err, &refusal) && refusal.Reported
}

// tellWaiting reports once that a Service waits, when it has done so for a while. A release is reported
// at its beginning and its end.
func (c *Controller) tellWaiting(service *corev1.Service, life *life) {
	if life.waitingSince.IsZero() {
		life.waitingSince = time.Now()
	}
	if life.toldWaiting || life.leaving || time.Since(life.waitingSince) < longWait {
		return
	}
	life.toldWaiting = true
	c.events.Event(service, corev1.EventTypeNormal, eventWaiting, textWaiting)
}

// tellRefusal reports what cannot be served, once for each text.
func (c *Controller) tellRefusal(service *corev1.Service, life *life, reason string) {
	if life.toldRefusal == reason {
		return
	}
	life.toldRefusal = reason
	c.events.Event(service, corev1.EventTypeWarning, eventUnsupported, reason)
}

// tellShortcomings reports problems with which a Service is served all the same.
func (c *Controller) tellShortcomings(ctx context.Context, service *corev1.Service, life *life) {
	if servedInPart(service) && !life.toldIPv4Only {
		life.toldIPv4Only = true
		c.events.Event(service, corev1.EventTypeNormal, eventIPv4Only, textIPv4Only)
	}
	some, err := c.anyNode()
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to list Nodes")
	case some:
		life.toldNoNodes = false
	case !life.toldNoNodes:
		life.toldNoNodes = true
		c.events.Event(service, corev1.EventTypeWarning, eventUnavailable, textUnavailable)
	}
}

// tellPublished reports a new address. Who wrote it into the status does not matter: kube-vip may have
// been faster.
func (c *Controller) tellPublished(ctx context.Context, service *corev1.Service, life *life,
	status *corev1.LoadBalancerStatus) {
	life.waitingSince = time.Time{}
	life.toldDryRun = ""
	addresses := addressesOf(status)
	if len(addresses) == 0 {
		return
	}
	if life.publishedAt.IsZero() {
		life.publishedAt = time.Now()
	}
	moved := len(service.Status.LoadBalancer.Ingress) > 0 &&
		!slices.Equal(addresses, addressesOf(&service.Status.LoadBalancer))
	if life.announced && !moved {
		return
	}
	c.events.Event(service, corev1.EventTypeNormal, eventEnsured, textEnsured)
	klog.FromContext(ctx).Info("Service has its address", "service", klog.KObj(service), "addresses", addresses)
	if !life.announced {
		c.metrics.publish.Observe(time.Since(life.asked).Seconds())
	}
	life.announced = true
}
