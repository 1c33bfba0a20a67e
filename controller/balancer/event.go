package balancer

// Reasons of the events on Services. Each is sent when something changes, not while it lasts.
const (
	eventBought     = "IPBlockBought"
	eventAssigning  = "IPBlockAssigning"
	eventAssigned   = "IPBlockAssigned"
	eventUnassigned = "IPBlockUnassigning"
	eventReleased   = "IPBlockReleased"
	eventRefused    = "IPBlockRefused"
)
