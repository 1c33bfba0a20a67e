// Package kinds lists the kinds of announcers.
package kinds

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/agents"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// All returns all kinds. leases returns kube-vip's Lease for a Service, see kubevip.Reader.
func All(leases func(service *corev1.Service, evidence time.Time) kubevip.Lease) announcer.Set {
	return announcer.Set{
		contract.AnnouncerKubeVIP: kubevip.Announcer{Leases: leases},
		contract.AnnouncerAgent:   agents.Announcer{},
		contract.AnnouncerNone:    announcer.None{},
	}
}
