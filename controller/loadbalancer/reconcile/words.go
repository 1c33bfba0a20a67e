package reconcile

import (
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
)

// words says what a Service waits for. Each text is constant, so that conditions and events repeat it and
// do not multiply.
func words(reason plan.Reason) string {
	switch reason {
	case plan.PurchaseDue, plan.BlockCreating, plan.BlockInvisible:
		return "waiting for IP block to be created"
	case plan.PurchaseUnanswered:
		return "waiting to learn whether an IP block was bought"
	case plan.AssignmentDue, plan.BlockAssigning:
		return "waiting for IP block to be assigned to the public network"
	case plan.BlockAssigned:
		return "IP block is assigned to the public network"
	case plan.UnassignmentDue, plan.BlockUnassigning:
		return "waiting for IP block to be unassigned from its network"
	case plan.DeletionDue:
		return "waiting for IP block to be deleted"
	case plan.DeletionUnverified:
		return "waiting for IP block to disappear from the account"
	case plan.NoBlock:
		return "IP block is released"
	case plan.BlockKept:
		return "IP block is given up and stays in the account"
	case plan.AddressResting:
		return "waiting for an address that is silent"
	default:
		return wordsOfHindrance(reason)
	}
}

// wordsOfHindrance says what keeps a Service waiting that has nothing to do with its own block.
func wordsOfHindrance(reason plan.Reason) string {
	switch reason {
	case plan.NetworkChanging:
		return "waiting for another change of the public network"
	case plan.NetworkUnreadable:
		return "waiting for the network of the IP block to become readable"
	case reasonLookupFailed:
		return "waiting for an answer of the phoenixNAP API about IP blocks"
	case reasonReleaseFailed:
		return "waiting to try the release of the IP block again"
	case reasonNoNodeReady:
		return "waiting for a node that is ready for the public network"
	case purchase.TagsFresh:
		return "waiting for new tags to be usable"
	case purchase.APIPaused:
		return "waiting as long as the phoenixNAP API asks to"
	case reasonOutdated:
		return "waiting for the latest version of the Service"
	case reasonLedger:
		return "waiting for the latest record of addresses"
	case reasonResting:
		return "waiting before the IP block is tried again after an error of the phoenixNAP API"
	case reasonSurplus:
		return "waiting for an IP block too many to be released"
	case reasonRetagging:
		return "waiting for the tags of the IP block to be changed"
	case reasonAnnounced:
		return "waiting until no machine answers for the address any more"
	default:
		return "waiting for IP block"
	}
}
