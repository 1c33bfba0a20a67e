package sheet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
)

// remarks says in sentences what is not well, and what to do about it; empty when all is well.
func (s Style) remarks(o overview.Overview) string {
	var b strings.Builder
	say := func(format string, args ...any) { b.WriteString(s.paragraph("- " + fmt.Sprintf(format, args...))) }
	for _, text := range o.Unreadable {
		say("%s", text)
	}
	if o.Controller.Looked != nil && o.Time.Sub(*o.Controller.Looked) > staleLook {
		say("What is told of IP blocks is %s old: no controller has looked at the account since.", age(o.Time, *o.Controller.Looked))
	}
	for _, n := range o.Nodes {
		for _, v := range []overview.Verdict{n.VLANReady, n.AnnouncementHealthy} {
			if v.Status != "" && !v.True() {
				say("Node %s: %s (kubectl pnap diagnose node %s)", n.Name, cmp.Or(v.Message, v.Reason), n.Name)
			}
		}
	}
	for _, service := range o.Services {
		if !service.Healthy {
			say("Service %s/%s: %s%s", service.Namespace, service.Name, cmp.Or(service.Message(), service.State), hint(service))
		}
	}
	switch count := releasable(o); count {
	case 0:
	case 1:
		say("An IP block is paid for, and nobody uses it (kubectl pnap blocks)")
	default:
		say("%d IP blocks are paid for, and nobody uses them (kubectl pnap blocks)", count)
	}
	return b.String()
}

// hint is the command that tells more of an address that is published and not answered.
func hint(service overview.Service) string {
	if service.Address == "" || !service.AddressPublished.True() || service.Going != nil {
		return ""
	}
	return " (kubectl pnap diagnose vip " + service.Address + ")"
}

func releasable(o overview.Overview) int {
	count := 0
	for _, b := range o.Blocks {
		if b.Releasable() && b.Standing != standingRetained {
			count++
		}
	}
	return count
}
