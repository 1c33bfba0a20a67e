package balancer

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	servicehelper "k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// Reasons of the condition that are not states of a block.
const (
	// reasonLookupFailed: the account could not be looked at.
	reasonLookupFailed ipblock.Reason = "LookupFailed"
	// reasonReleaseFailed: a step of the release was not carried out.
	reasonReleaseFailed ipblock.Reason = "ReleaseFailed"
	// reasonNoNodeReady: the block is assigned, but no node can carry its traffic yet.
	reasonNoNodeReady ipblock.Reason = "NoNodeReady"
	// reasonTagsFresh: the account's tags were created a moment ago and cannot be used yet.
	reasonTagsFresh ipblock.Reason = "TagsFresh"
	// reasonOutdated: the Service changed while it was worked on.
	reasonOutdated ipblock.Reason = "ServiceChanged"
	// reasonResting: the API failed to move the block and is not asked again for a while.
	reasonResting ipblock.Reason = "BlockInError"
	// reasonPaused: the API asked to be left alone for a while.
	reasonPaused ipblock.Reason = "APIPaused"
)

// words says what a Service waits for. Each text is constant, so that the events which the framework
// makes of it are counted and not multiplied.
func words(reason ipblock.Reason) string {
	switch reason {
	case ipblock.PurchaseDue, ipblock.BlockCreating, ipblock.BlockInvisible:
		return "waiting for IP block to be created"
	case ipblock.PurchaseUnanswered:
		return "waiting to learn whether an IP block was bought"
	case ipblock.AssignmentDue, ipblock.BlockAssigning:
		return "waiting for IP block to be assigned to the public network"
	case ipblock.BlockAssigned:
		return "IP block is assigned to the public network"
	case ipblock.UnassignmentDue, ipblock.BlockUnassigning:
		return "waiting for IP block to be unassigned from its network"
	case ipblock.DeletionDue:
		return "waiting for IP block to be deleted"
	case ipblock.DeletionUnverified:
		return "waiting for IP block to disappear from the account"
	case ipblock.NoBlock:
		return "IP block is released"
	case ipblock.NetworkChanging:
		return "waiting for another change of the public network"
	case ipblock.NetworkUnreadable:
		return "waiting for the network of the IP block to become readable"
	case reasonLookupFailed:
		return "waiting for an answer of the phoenixNAP API about IP blocks"
	case reasonReleaseFailed:
		return "waiting to try the release of the IP block again"
	case reasonNoNodeReady:
		return "waiting for a node that is ready for the public network"
	case reasonTagsFresh:
		return "waiting for new tags to be usable"
	case reasonOutdated:
		return "waiting for the latest version of the Service"
	case reasonResting:
		return "waiting before the IP block is tried again after an error of the phoenixNAP API"
	case reasonPaused:
		return "waiting as long as the phoenixNAP API asks to"
	default:
		return "waiting for IP block"
	}
}

// note writes the condition that says where the Service's block stands. It tells whether that was a
// change. A Service that is gone needs no condition.
func (b *Balancer) note(ctx context.Context, service *corev1.Service, reason ipblock.Reason, message string) (changed bool, err error) {
	if service == nil {
		return false, nil
	}
	condition, changed := nextCondition(service, reason, message, b.config.Now())
	if !changed {
		return false, nil
	}
	err = b.patchStatus(ctx, service, false, map[string]any{"conditions": []metav1.Condition{condition}})
	if errors.Is(err, errOutdated) {
		return false, nil
	}
	return err == nil, err
}

// nextCondition is the condition for a reason, and whether the Service says something else so far.
func nextCondition(service *corev1.Service, reason ipblock.Reason, message string, now time.Time) (metav1.Condition, bool) {
	condition := metav1.Condition{
		Type: contract.ServiceConditionBlockAssigned, Status: metav1.ConditionFalse, Reason: string(reason), Message: message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if reason == ipblock.BlockAssigned {
		condition.Status = metav1.ConditionTrue
	}
	old := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	if old == nil {
		return condition, true
	}
	if old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	return condition, old.Status != condition.Status || old.Reason != condition.Reason || old.Message != condition.Message
}

// patchStatus writes the status of exactly this Service, not of another that has taken its name; exactly
// makes it a compare-and-swap as well.
func (b *Balancer) patchStatus(ctx context.Context, service *corev1.Service, exactly bool, status map[string]any) error {
	metadata := map[string]any{"uid": service.UID}
	if exactly {
		metadata["resourceVersion"] = service.ResourceVersion
	}
	_, err := b.send(ctx, service, types.StrategicMergePatchType, map[string]any{"metadata": metadata, "status": status}, "status")
	return err
}

// noteQuietly is note where a failure must not hide what else there is to say.
func (b *Balancer) noteQuietly(ctx context.Context, service *corev1.Service, reason ipblock.Reason, message string) (changed bool) {
	changed, err := b.note(ctx, service, reason, message)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Condition not written", "service", klog.KObj(service), "reason", reason)
	}
	return changed
}

// noteLookupFailure marks a Service that is being released, so that the watch notices when the account
// can be looked at again. The framework waits up to five minutes by itself.
func (b *Balancer) noteLookupFailure(ctx context.Context, service *corev1.Service) {
	if beingReleased(service) {
		b.noteQuietly(ctx, service, reasonLookupFailed, words(reasonLookupFailed))
	}
}

// beingReleased tells whether the framework will delete the Service's load balancer: it carries its
// finalizer and is going, or is no LoadBalancer any more.
func beingReleased(service *corev1.Service) bool {
	return servicehelper.HasLBFinalizer(service) &&
		(service.DeletionTimestamp != nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer)
}
