package reconcile

import "github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"

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
	// eventReplaced (Warning): the address changed, because the Service asks for another or its block was lost.
	eventReplaced = "AddressReplaced"
	// eventReused (Normal): the address was given back more than ten minutes ago, and not every agent has reported that
	// it is silent.
	eventReused = "AddressReused"
	// eventForeign (Warning): an address of another Service was taken off a copy or a restored backup.
	eventForeign = "ForeignAddressRemoved"
	// eventRefused (Warning): what is asked for cannot be had; says what to do. Sent once, until that changes.
	eventRefused = "IPBlockRefused"
	// eventLost (Warning): the block was deleted outside of the cluster.
	eventLost = "BlockLost"
	// eventRetagged (Warning): the tags of the block were changed outside of the cluster.
	eventRetagged = "BlockRetagged"
	// eventStale (Warning): an address that was given back still answers. Sent for the Service that had it, or the
	// Nodes that answer.
	eventStale = "StaleAddress"
)

// eventOf is the reason of the event about a refusal.
func eventOf(reason plan.Reason) string {
	switch reason {
	case plan.BlockLost:
		return eventLost
	case plan.BlockRetagged:
		return eventRetagged
	default:
		return eventRefused
	}
}
