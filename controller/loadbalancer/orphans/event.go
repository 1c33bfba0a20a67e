package orphans

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// Reasons of the events on the Namespace kube-system.
const (
	// eventOrphaned (Warning): a block is paid for but not used.
	eventOrphaned = "OrphanedIPBlock"
	// eventCollected (Normal): an orphan was given back to phoenixNAP.
	eventCollected = "OrphanCollected"
	// eventStuck (Warning): an orphan cannot be given back until a person has acted.
	eventStuck = "OrphanNotCollected"
	// eventDryRun (Normal): what would have been changed.
	eventDryRun = "DryRun"
)

// retell is how often an orphan is reported again: the API server forgets events after an hour by default.
const retell = time.Hour

// report records an event about a block; the text is constant, so that repetitions are counted and not listed.
func (c *Collector) report(s *suspicion) {
	b := s.block
	age := "first seen " + s.since.UTC().Format(time.RFC3339)
	if !b.CreatedOn.IsZero() {
		age = "created " + b.CreatedOn.UTC().Format(time.RFC3339)
	}
	c.record(corev1.EventTypeWarning, eventOrphaned,
		fmt.Sprintf("IP block %s (%s, %s): %s. %s", b.ID, b.CIDR, age, accusation(s.standing, b), c.remedy(s.standing)))
}

// accusation says what is wrong with a block.
func accusation(s blockState, b plan.Block) string {
	service, _ := serviceOf(b)
	switch s {
	case orphan:
		return fmt.Sprintf("it was bought for Service %s (<namespace>_<name>), which does not exist", service)
	case leftover:
		return "phoenixnap/k8s-cloud-provider-bmc v1 marked it for deletion"
	case empty:
		return "it was bought to be shared, and none of its addresses is held"
	case unclear:
		return "it was bought for this cluster, but its tags, or they and the recorded purchases, do not say what for"
	case inUse, retained:
		return string(s)
	default:
		return string(s)
	}
}

// remedy says what becomes of the block, or what to do.
func (c *Collector) remedy(s blockState) string {
	switch {
	case s == leftover, s == orphan && c.config.Collect:
		return "It is going to be deleted"
	case s == orphan:
		return "It is paid for until it is deleted: delete it in the phoenixNAP portal, create the Service again, or " +
			"set --collect-orphans"
	case s == empty:
		return "It is paid for until it is deleted: the controller does that by itself, for a block of the nodes " +
			"with --manage-membership; else delete it in the phoenixNAP portal"
	default:
		return "It is paid for until it is deleted: look it up in the phoenixNAP portal"
	}
}

func (c *Collector) record(eventType, reason, text string) {
	c.config.Events.Event(c.namespace, eventType, reason, text)
}
