package announcement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// maxCauses bounds the message of the condition; a Node object is read by every watcher of the cluster.
const maxCauses = 5

// Sum makes one verdict of the findings of all addresses: a failure outweighs what is unknown.
func Sum(findings []check.Finding) check.Verdict {
	if len(findings) == 0 {
		return check.Verdict{Status: check.OK, Reason: ReasonNothingAnnounced, Message: "no Service has a published address"}
	}
	for _, status := range []check.Status{check.Fail, check.Unknown} {
		var causes []string
		reason := ""
		for _, f := range findings {
			if f.Status != status {
				continue
			}
			if reason == "" {
				reason = f.Reason
			}
			causes = append(causes, string(f.ID)+": "+f.Cause)
		}
		if len(causes) > 0 {
			return check.Verdict{Status: status, Reason: reason, Message: bounded(causes)}
		}
	}
	return check.Verdict{Status: check.OK, Reason: ReasonAnswered, Message: "every published address is answered by one machine"}
}

func bounded(causes []string) string {
	slices.Sort(causes)
	if more := len(causes) - maxCauses; more > 0 {
		causes = append(causes[:maxCauses], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(causes, "; ")
}
