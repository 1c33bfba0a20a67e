package balancer

import "github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"

// Reasons of the events on Services. Each is sent when something changes, not while it lasts.
const (
	eventBought     = "IPBlockBought"
	eventAssigning  = "IPBlockAssigning"
	eventAssigned   = "IPBlockAssigned"
	eventUnassigned = "IPBlockUnassigning"
	eventReleased   = "IPBlockReleased"
	eventRetained   = "IPBlockRetained"
	eventReplaced   = "AddressReplaced"
	eventReused     = "AddressReused"
	eventForeign    = "ForeignAddressRemoved"
	eventRefused    = "IPBlockRefused"
	eventLost       = "BlockLost"
	eventRetagged   = "BlockRetagged"
	eventStale      = "StaleAddress"
)

// eventOf is the reason of the event about a refusal.
func eventOf(reason ipblock.Reason) string {
	switch reason {
	case ipblock.BlockLost:
		return eventLost
	case ipblock.BlockRetagged:
		return eventRetagged
	default:
		return eventRefused
	}
}
