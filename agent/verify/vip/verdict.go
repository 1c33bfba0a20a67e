package vip

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// maxCauses and maxMessage bound the message of the condition; a Node object is read by every watcher of the cluster.
const (
	maxCauses  = 5
	maxMessage = 1000 // bytes
)

// Sum combines the findings of all addresses: a failure outweighs what is unknown. The reason is that of the finding
// that is closest to its cause, see rank.
func Sum(findings []check.Finding) check.Verdict {
	if len(findings) == 0 {
		return check.Verdict{Status: check.OK, Reason: ReasonNothingAnnounced,
			Message: "no Service has a published address"}
	}
	for _, status := range []check.Status{check.Fail, check.Unknown} {
		bad := slices.DeleteFunc(slices.Clone(findings), func(f check.Finding) bool { return f.Status != status })
		if len(bad) == 0 {
			continue
		}
		slices.SortStableFunc(bad, func(a, b check.Finding) int {
			if c := rank(a.ID) - rank(b.ID); c != 0 {
				return c
			}
			return strings.Compare(a.Cause, b.Cause)
		})
		return check.Verdict{Status: status, Reason: bad[0].Reason, Message: bounded(bad)}
	}
	return check.Verdict{Status: check.OK, Reason: ReasonAnswered,
		Message: "every published address is answered by one machine"}
}

// rank orders the checks by how much a finding concerns this node: what it carries itself goes before what it only
// receives.
func rank(id check.ID) int {
	return slices.Index([]check.ID{
		NothingStale, RightInterface, ReturnByNetwork, LeaseAlive, OwnMachine, SingleAnswer, RightNode, HolderAnswers,
		AddressAnswers,
	}, id)
}

// bounded joins causes until the message is long enough; it has no counters, so it changes only when the causes do.
func bounded(bad []check.Finding) string {
	var text strings.Builder
	for i, f := range bad {
		cause := fmt.Sprintf("%s: %s", f.ID, f.Cause)
		if i > 0 && (i == maxCauses || text.Len()+len(cause) > maxMessage) {
			text.WriteString("; and more")
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(cause)
	}
	return text.String()
}
