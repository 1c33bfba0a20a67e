package reconcile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Reasons of the condition BlockAssigned that are not states of a block.
const (
	// reasonLookupFailed: the account could not be read; the message repeats the words of the API.
	reasonLookupFailed ipblock.Reason = "LookupFailed"
	// reasonReleaseFailed: a step of the release was not carried out; the message repeats why.
	reasonReleaseFailed ipblock.Reason = "ReleaseFailed"
	// reasonBackingOff: the API failed to move the block and is not asked again for a while.
	reasonBackingOff ipblock.Reason = "BlockInError"
	// reasonRetagging: the tags of the block are being changed.
	reasonRetagging ipblock.Reason = "BlockRetagging"
	// reasonAnnounced: the address still answers though it is withdrawn.
	reasonAnnounced ipblock.Reason = "AddressAnswers"
)

// What a Service waits for while its conditions say nothing of it.
const (
	// waitOutdated: the Service changed while it was worked on.
	waitOutdated ipblock.Reason = "ServiceChanged"
	// waitLedger: the IPBlock was changed, by the last sync or by another one.
	waitLedger ipblock.Reason = "LedgerChanged"
	// waitSurplus: a block is released that the Service does not keep. Its own block is assigned.
	waitSurplus ipblock.Reason = "SurplusBlock"
	// waitChanges: the Service was changed so often that its next change waits.
	waitChanges ipblock.Reason = "ManyChanges"
)

// Reasons of the condition AddressPublished, and its messages.
const (
	// reasonPublished: the address is in the status of the Service.
	reasonPublished = "Published"
	// reasonBlockNotReady: the IP block is not assigned yet.
	reasonBlockNotReady  = "BlockNotAssigned"
	messagePublished     = "the address is in the status of the Service"
	messageBlockNotReady = "the address is published once its IP block is assigned"
)

// blockCondition says where the block of the Service stands. That is unknown while the account cannot be read.
func blockCondition(reason ipblock.Reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	switch reason {
	case ipblock.BlockAssigned:
		status = metav1.ConditionTrue
	case reasonLookupFailed, purchase.APIPaused:
		status = metav1.ConditionUnknown
	default:
	}
	return contract.NewServiceCondition(contract.ServiceConditionBlockAssigned, status, string(reason), message)
}

// publishedCondition says whether the address stands in the status, and what keeps it from there.
func publishedCondition(published bool, reason ipblock.Reason, message string) metav1.Condition {
	if published {
		return contract.NewServiceCondition(contract.ServiceConditionAddressPublished, metav1.ConditionTrue,
			reasonPublished, messagePublished)
	}
	return contract.NewServiceCondition(contract.ServiceConditionAddressPublished, metav1.ConditionFalse,
		string(reason), message)
}

// setConditions sets conditions of the Service. It reports whether any was different.
func (b *Balancer) setConditions(d *Draft, conditions ...metav1.Condition) (changed bool) {
	for _, condition := range conditions {
		condition.LastTransitionTime = metav1.NewTime(b.config.Now().Truncate(time.Second))
		if meta.SetStatusCondition(&d.Service.Status.Conditions, condition) {
			changed = true
		}
	}
	return changed
}

// setBlockCondition says where the block of a Service stands that has no published address, or is about to lose it.
func (b *Balancer) setBlockCondition(d *Draft, reason ipblock.Reason, message string) (changed bool) {
	published := hasAddress(d.Service, d.Service.Annotations[contract.ServiceIPAddress])
	return b.setConditions(d, blockCondition(reason, message),
		publishedCondition(published, reasonBlockNotReady, messageBlockNotReady))
}

// setWaiting is setBlockCondition for a wait. What it says stays the same while the wait lasts, also in the next
// process: each write costs the API server, and says nothing new.
func (b *Balancer) setWaiting(d *Draft, step ipblock.Step) {
	step.Network = cmp.Or(step.Network, step.Block.ResourceID, b.config.Network.ID)
	message := waitMessage(step)
	began := b.pace.began(d.Service.UID)
	if message != words(step.Reason) && step.Reason != ipblock.BlockInvisible && !began.IsZero() {
		message += requestedAt
		have := meta.FindStatusCondition(d.Service.Status.Conditions, contract.ServiceConditionBlockAssigned)
		if have != nil && have.Reason == string(step.Reason) && strings.HasPrefix(have.Message, message) {
			message = have.Message
		} else {
			message += began.UTC().Format(time.RFC3339)
		}
	}
	b.setBlockCondition(d, step.Reason, message)
}

// requestedAt precedes the time of a request in the message of a condition.
const requestedAt = ", requested at "

// waitMessage names the block, and the network, that a Service waits for.
func waitMessage(step ipblock.Step) string {
	block := ": block " + step.Block.ID
	if step.Block.CIDR.IsValid() {
		block += " (" + step.Block.CIDR.String() + ")"
	}
	switch {
	case step.Block.ID == "":
		return words(step.Reason)
	case step.Reason == ipblock.BlockCreating, step.Reason == ipblock.BlockInvisible:
		return words(step.Reason) + block
	case step.Reason == ipblock.BlockAssigning, step.Reason == ipblock.BlockUnassigning:
		return words(step.Reason) + block + ", network " + step.Network
	default:
		return words(step.Reason)
	}
}

// hasConditions reports whether the Service has all these conditions, whenever they changed.
func hasConditions(service *corev1.Service, conditions []metav1.Condition) bool {
	return !slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		have := meta.FindStatusCondition(service.Status.Conditions, c.Type)
		return have == nil || have.Status != c.Status || have.Reason != c.Reason || have.Message != c.Message
	})
}

// Reasons of the events on Services. Each is sent when something changes, not while it lasts.
const (
	// eventBought (Normal): a block was bought.
	eventBought = "IPBlockBought"
	// eventAssigning (Normal): the block is being assigned to the public network.
	eventAssigning = "IPBlockAssigning"
	// eventAssigned (Normal): it is assigned; the address stands on the Service.
	eventAssigned = "IPBlockAssigned"
	// eventUnassigned (Normal): the block is being taken off the public network.
	eventUnassigned = "IPBlockUnassigning"
	// eventReleased (Normal): nothing of the block is left in the account.
	eventReleased = "IPBlockReleased"
	// eventRetained (Normal): the block stays in the account when the Service goes.
	eventRetained = "IPBlockRetained"
	// eventReplaced (Normal): the address changed, because the Service asks for another, or its block was lost and the
	// Service allows a replacement.
	eventReplaced = "AddressReplaced"
	// eventReused (Normal): the address was released more than ten minutes ago, and not every agent has
	// confirmed that it is unused.
	eventReused = "AddressReused"
	// eventForeign (Normal): an address of another Service was taken off a copy or a restored backup, which gets its
	// own.
	eventForeign = "ForeignAddressRemoved"
	// eventRefused (Warning): what is asked for cannot be had; says what to do. Sent once, until that changes.
	eventRefused = "IPBlockRefused"
	// eventConflict (Warning): the Service cannot have the address that others have with the same annotation
	// shared-address, or not any more; names one of them and what to change.
	eventConflict = "AddressConflict"
	// eventLost (Warning): the block was deleted outside of the cluster.
	eventLost = "BlockLost"
	// eventRetagged (Warning): the tags of the block were changed outside of the cluster.
	eventRetagged = "BlockRetagged"
	// eventUnreadable (Warning): a ConfigMap in which the controller records addresses or purchases cannot be read;
	// names it and what to do.
	eventUnreadable = "RecordUnreadable"
	// eventStale (Warning): an address that was released still answers. Sent for the Service that had it, or the
	// Nodes that answer.
	eventStale = "StaleAddress"
)

// eventOf is the reason of the event about a refusal.
func eventOf(reason ipblock.Reason) string {
	switch reason {
	case ipblock.AddressConflict:
		return eventConflict
	case ipblock.BlockLost:
		return eventLost
	case ipblock.BlockRetagged:
		return eventRetagged
	case ipblock.LedgerUnreadable:
		return eventUnreadable
	default:
		return eventRefused
	}
}

// words says what a Service waits for. Each text is constant, so that conditions and events repeat it and
// do not multiply.
func words(reason ipblock.Reason) string { return cmp.Or(texts[reason], "waiting for IP block") }

var texts = map[ipblock.Reason]string{
	ipblock.PurchaseDue:        "waiting for IP block to be created",
	ipblock.BlockCreating:      "waiting for IP block to be created",
	ipblock.BlockInvisible:     "waiting for the phoenixNAP API to show the IP block",
	ipblock.PurchaseUnanswered: "waiting to learn whether an IP block was bought",
	ipblock.AssignmentDue:      "waiting for IP block to be assigned to the public network",
	ipblock.BlockAssigning:     "waiting for IP block to be assigned to the public network",
	ipblock.BlockAssigned:      "IP block is assigned to the public network",
	ipblock.UnassignmentDue:    "waiting for IP block to be unassigned from its network",
	ipblock.BlockUnassigning:   "waiting for IP block to be unassigned from its network",
	ipblock.DeletionDue:        "waiting for IP block to be deleted",
	ipblock.DeletionUnverified: "waiting for IP block to disappear from the account",
	ipblock.AddressQuarantined: "waiting for the quarantine of a released address to end",

	// What has nothing to do with the Service's own block.
	ipblock.NetworkChanging:   "waiting for another change of the public network",
	ipblock.NetworkUnreadable: "waiting for the network of the IP block to become readable",
	reasonLookupFailed:        "waiting for an answer of the phoenixNAP API about IP blocks",
	reasonReleaseFailed:       "waiting to try the release of the IP block again",
	ipblock.NoNodeReady:       "waiting for a Node that may carry load-balancer traffic",
	purchase.TagsFresh:        "waiting for new tags to be usable",
	purchase.APIPaused:        "waiting because the phoenixNAP API limits the request rate",
	waitOutdated:              "waiting for the latest version of the Service",
	waitLedger:                "waiting for the latest version of the IPBlock",
	reasonBackingOff:          "waiting before the IP block is tried again after an error of the phoenixNAP API",
	waitChanges:               "waiting because the Service was changed many times within minutes",
	waitSurplus:               "waiting for a surplus IP block to be released",
	reasonRetagging:           "waiting for the tags of the IP block to be changed",
	reasonAnnounced:           "waiting until no machine answers for the address any more",
}

// refuse says what a person has to change.
func (b *Balancer) refuse(d *Draft, step ipblock.Step) error {
	refusal := b.recordRefusal(d, step)
	b.pace.done(d.Service.UID)
	return refusal
}

// recordRefusal writes a refusal on the Service and, when it did not say that before, sends an event. A Service that is
// gone can say nothing.
func (b *Balancer) recordRefusal(d *Draft, step ipblock.Step) *plan.Refusal {
	refusal := &plan.Refusal{Reason: step.Reason, Detail: step.Detail}
	refusal.Reported = !d.Gone && hasRefusal(d.Service, step)
	if changed := b.setBlockCondition(d, step.Reason, step.Detail); changed && !refusal.Reported {
		b.report(d, refusal)
	}
	return refusal
}

// hasRefusal reports whether the Service has the refusal in its condition, whatever the status of that is: the address
// may work all the same.
func hasRefusal(service *corev1.Service, step ipblock.Step) bool {
	have := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	return have != nil && have.Reason == string(step.Reason) && have.Message == step.Detail
}

// report sends the event about a refusal once the condition is written.
func (b *Balancer) report(d *Draft, refusal *plan.Refusal) {
	d.AfterSave(func() {
		b.config.Events.Event(d.Service, corev1.EventTypeWarning, eventOf(refusal.Reason), refusal.Detail)
		refusal.Reported = true
	})
}
