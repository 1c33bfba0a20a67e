// Package agents describes the agents as announcers: they answer ARP from user space, on a quorum's behalf.
package agents

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Announcer is the kind of the agents.
type Announcer struct{}

var _ announcer.Announcer = Announcer{}

// Placement is announcer.UserSpace.
func (Announcer) Placement() announcer.Placement { return announcer.UserSpace }

// Elected returns nothing: an agent answers only while a quorum confirms that it should, so an answer needs no other
// proof.
func (Announcer) Elected(*corev1.Service, time.Time) announcer.Election { return announcer.Election{} }

// Named returns nothing: agents do not write on Services.
func (Announcer) Named(*corev1.Service) (node, annotation string) { return "", "" }

// NeedsEndpoints returns nothing: agents announce the addresses of Services without endpoints, too.
func (Announcer) NeedsEndpoints() string { return "" }

// Fixes returns what repairs a fault.
func (Announcer) Fixes(f announcer.Fault) []check.Fix {
	switch f.Kind {
	case announcer.Stale:
		if len(f.Carried) == 0 {
			return announcer.Advice("the agent of this node stops as soon as it sees that no Service uses the " +
				"address; if this lasts, restart the agent")
		}
		return f.RemoveCarried("on this node: no interface needs the address of a Service while the agents announce")
	case announcer.Stray:
		return announcer.Advice("on the node of which an interface carries it, unless the address is used on purpose",
			f.Remove(f.Interface))
	case announcer.Duplicate:
		return announcer.Advice("on the node of which an interface carries it: the agents announce addresses without "+
			"adding them", f.Remove(f.Interface))
	case announcer.Silent, announcer.OwnerSilent, announcer.Unguarded, announcer.WrongInterface:
		return announcer.Advice("an agent must run on a node that is ready for the public network; the ConfigMap "+
			"shows which node must announce the address",
			"kubectl --namespace kube-system get pods --output wide --selector app.kubernetes.io/name=phoenixnap-agent",
			"kubectl --namespace kube-system get configmap "+contract.AnnouncerView+" --output yaml")
	default:
		return nil
	}
}
