package service

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Reasons of the events on Services. Those of the framework's service controller keep their names.
const (
	// eventEnsuring (Normal): the first look at a Service.
	eventEnsuring = "EnsuringLoadBalancer"
	// eventEnsured (Normal): the Service has an address, or another one.
	eventEnsured = "EnsuredLoadBalancer"
	// eventDeleting (Normal): a release begins.
	eventDeleting = "DeletingLoadBalancer"
	// eventDeleted (Normal): the release is done.
	eventDeleted = "DeletedLoadBalancer"
	// eventDeleteFailed (Warning): an error of a release, which is tried again after 5 s to 5 minutes; says what to
	// do if phoenixNAP refused.
	eventDeleteFailed = "DeleteLoadBalancerFailed"
	// eventSyncFailed (Warning): an error that is tried again after 5 s to 5 minutes; says what to do if phoenixNAP
	// refused. Never sent for a mere wait, nor beside a refusal that has its own event.
	eventSyncFailed = "SyncLoadBalancerFailed"
	// eventUnavailable (Warning): no Node may carry traffic of load balancers; names the Nodes, why each may not, and
	// what to do.
	eventUnavailable = "UnAvailableLoadBalancer"
	// eventWaiting (Normal): the address takes longer than 30 s; the conditions say what it waits for. Sent once.
	eventWaiting = "WaitingForLoadBalancer"
	// eventDryRun (Normal): what would have been bought, changed or deleted.
	eventDryRun = "DryRun"
	// eventUnsupported (Warning): IPv6 only, RequireDualStack or the PROXY protocol is asked for; nothing is bought.
	eventUnsupported = "LoadBalancerUnsupported"
	// eventIPv4Only (Normal): PreferDualStack is served with IPv4 only.
	eventIPv4Only = "IPv4Only"
	// eventIgnored (Warning): kube-vip has not taken up a Service of the class phoenixnap.com/ccm within a minute,
	// though it has endpoints; set its lb_class_name.
	eventIgnored = "AnnouncerIgnoresClass"
	// eventFar (Warning): all ready endpoints of the Service are in other locations than its public network; each
	// request travels there. Sent once.
	eventFar = "EndpointsElsewhere"
)

// Constant texts of events, so that the API server's clients count them.
const (
	textEnsuring    = "Ensuring load balancer"
	textEnsured     = "Ensured load balancer"
	textDeleting    = "Deleting load balancer"
	textDeleted     = "Deleted load balancer"
	textUnavailable = "There are no available nodes for LoadBalancer"
	textWaiting     = "Waiting for a public address; the conditions of the Service say what for"
	textIPv4Only    = "ipFamilyPolicy PreferDualStack: the Service gets an IPv4 address only, phoenixNAP load " +
		"balancers have no IPv6"
)

// longWait is how long a Service waits before an event reports it.
const longWait = 30 * time.Second

// isRefused reports whether the error is that a person has to act.
func isRefused(err error) bool {
	var refusal *plan.Refusal
	return errors.As(err, &refusal)
}

// isReported reports whether the balancer has already sent an event for its error.
func isReported(err error) bool {
	var refusal *plan.Refusal
	return errors.As(err, &refusal) && refusal.Reported
}

// warn records an event of type Warning on a Service.
func (c *Controller) warn(service *corev1.Service, reason, message string) {
	c.config.Events.Event(service, corev1.EventTypeWarning, reason, message)
}

// inform records an event of type Normal on a Service.
func (c *Controller) inform(service *corev1.Service, reason, message string) {
	c.config.Events.Event(service, corev1.EventTypeNormal, reason, message)
}

// recordWaiting reports once that a Service has been waiting for a while; a release is reported otherwise.
func (c *Controller) recordWaiting(service *corev1.Service, state *serviceState) {
	if state.waitingSince.IsZero() {
		state.waitingSince = time.Now()
	}
	hasAddress := len(service.Status.LoadBalancer.Ingress) > 0
	if state.recordedWaiting || state.leaving || hasAddress || time.Since(state.waitingSince) < longWait {
		return
	}
	state.recordedWaiting = true
	c.inform(service, eventWaiting, textWaiting)
}

// recordShortcomings reports problems with which a Service is served all the same.
func (c *Controller) recordShortcomings(ctx context.Context, service *corev1.Service, state *serviceState) {
	if servedInPart(service) && !state.recordedIPv4Only {
		state.recordedIPv4Only = true
		c.inform(service, eventIPv4Only, textIPv4Only)
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list Nodes")
		return
	}
	may, why := c.config.Carriers(c.config.Balancer.NetworkOf(ctx, service).ID).Any(nodes)
	if !may && !state.recordedNoNodes {
		c.warn(service, eventUnavailable, text.Message(textUnavailable+": "+why))
	}
	state.recordedNoNodes = !may
}

// recordPublished reports a new address. Who wrote it to the status does not matter: kube-vip may have been faster.
func (c *Controller) recordPublished(ctx context.Context, service *corev1.Service, state *serviceState,
	before, status *corev1.LoadBalancerStatus) {
	state.waitingSince = time.Time{}
	state.recordedDryRun = ""
	addresses := addressesOf(status)
	if len(addresses) == 0 {
		return
	}
	if state.publishedAt.IsZero() {
		state.publishedAt = time.Now()
	}
	moved := len(before.Ingress) > 0 && !slices.Equal(addresses, addressesOf(before))
	if state.announced && !moved {
		return
	}
	c.inform(service, eventEnsured, textEnsured)
	klog.FromContext(ctx).Info("Service has its address", "service", klog.KObj(service), "addresses", addresses)
	if !state.announced {
		c.config.Metrics.publish.Observe(time.Since(state.requested).Seconds())
	}
	state.announced = true
}

// recordFailure reports an error that users must know: not that a Service waits a moment, nor that the process ends.
func (c *Controller) recordFailure(ctx context.Context, service *corev1.Service, state *serviceState, during string,
	err error) {
	switch {
	case ctx.Err() != nil:
	case isWaiting(err):
		c.recordWaiting(service, state)
	case pnap.IsDryRun(err):
		if said := text.Stable(err.Error()); said != state.recordedDryRun {
			state.recordedDryRun = said
			c.inform(service, eventDryRun, said)
		}
	case isReported(err):
	default:
		c.warn(service, eventSyncFailed, "Error syncing load balancer: "+during+explain(err))
	}
}

// explain returns an error in words that are the same for each attempt, and what to do if phoenixNAP refused.
func explain(err error) string {
	said := text.Stable(err.Error())
	if _, ok := errors.AsType[*pnap.Error](err); ok {
		said += "; " + pnap.Remedy(err)
	}
	return said
}

// checkAnnouncer warns once when the announcer ignores a Service of our class. again is when to check next; 0 for
// never.
func (c *Controller) checkAnnouncer(ctx context.Context, service *corev1.Service, state *serviceState,
	status *corev1.LoadBalancerStatus) (again time.Duration) {
	if !contract.HasOwnClass(&service.Spec) || state.announcerChecked || state.publishedAt.IsZero() {
		return 0
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list Nodes")
	}
	warning, again := c.announcer.Ignores(ctx, service, addressesOf(status), nodes, state.publishedAt)
	state.announcerChecked = again == 0
	if warning != "" {
		c.warn(service, eventIgnored, warning)
	}
	return again
}
