package service

import (
	"regexp"
	"strings"
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
	// eventDeleteFailed (Warning): an error of a release, which is tried again after 5 s to 5 minutes.
	eventDeleteFailed = "DeleteLoadBalancerFailed"
	// eventSyncFailed (Warning): an error that is tried again after 5 s to 5 minutes. Never sent for a mere wait, nor
	// beside a refusal that has its own event.
	eventSyncFailed = "SyncLoadBalancerFailed"
	// eventUnavailable (Warning): no Node may carry traffic of load balancers.
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
)

// Texts of those events that say the same each time, so that the API server's clients count them.
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
