package sheet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
)

// problems lists what is wrong, and what to do about it, in sentences; empty when there is no problem.
func (s Style) problems(o overview.Overview) string {
	var b strings.Builder
	add := func(format string, args ...any) { b.WriteString(s.paragraph("- " + fmt.Sprintf(format, args...))) }
	for _, text := range o.Unreadable {
		add("%s", text)
	}
	if o.Controller.Looked != nil && o.Time.Sub(*o.Controller.Looked) > staleReport {
		add("The report on IP blocks is %s old: no controller has read the account since.",
			age(o.Time, *o.Controller.Looked))
	}
	for _, n := range o.Nodes {
		for _, v := range []overview.Condition{n.VLANReady, n.AnnouncementHealthy} {
			if v.Status != "" && !v.True() {
				add("Node %s: %s (kubectl pnap diagnose node %s)", n.Name, cmp.Or(v.Message, v.Reason), n.Name)
			}
		}
	}
	for _, service := range o.Services {
		if !service.Healthy {
			message := cmp.Or(service.Message(), service.State)
			add("Service %s/%s: %s%s", service.Namespace, service.Name, message, hint(service))
		}
	}
	switch count := releasable(o); count {
	case 0:
	case 1:
		add("1 IP block is paid for but unused (kubectl pnap blocks)")
	default:
		add("%d IP blocks are paid for but unused (kubectl pnap blocks)", count)
	}
	return b.String()
}

// hint returns the command that explains why an address is published but not answered.
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
