package services

import (
	"regexp"
	"strings"
)

// Reasons of the events on Services. Those of the framework's service controller keep their names.
const (
	eventEnsuring     = "EnsuringLoadBalancer"
	eventEnsured      = "EnsuredLoadBalancer"
	eventDeleting     = "DeletingLoadBalancer"
	eventDeleted      = "DeletedLoadBalancer"
	eventDeleteFailed = "DeleteLoadBalancerFailed"
	eventSyncFailed   = "SyncLoadBalancerFailed"
	eventUnavailable  = "UnAvailableLoadBalancer"
	eventWaiting      = "WaitingForLoadBalancer"
	eventDryRun       = "DryRun"
	eventUnsupported  = "LoadBalancerUnsupported"
	eventIPv4Only     = "IPv4Only"
	eventIgnored      = "AnnouncerIgnoresClass"
)

// Texts of those events that say the same each time, so that the API server's clients count them.
const (
	textEnsuring    = "Ensuring load balancer"
	textEnsured     = "Ensured load balancer"
	textDeleting    = "Deleting load balancer"
	textDeleted     = "Deleted load balancer"
	textUnavailable = "There are no available nodes for LoadBalancer"
	textWaiting     = "Waiting for a public address; the conditions of the Service say what for"
	textIPv4Only    = "ipFamilyPolicy PreferDualStack: the Service gets an IPv4 address only, phoenixNAP load balancers have no IPv6"
)

// longestText bounds what an event repeats of an error, in bytes.
const longestText = 1000

// localPort is this side of a connection in the errors of package net: its port is another each time.
var localPort = regexp.MustCompile(`(?:\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.%a-z]+\]):\d+->`)

// stable cuts what differs from one attempt to the next out of the text of an error, because only events
// with the same text are counted together.
func stable(err error) string {
	text := localPort.ReplaceAllString(err.Error(), "")
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText], "") + "…"
	}
	return text
}
