package kubevip

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// Announcer is the kind of kube-vip.
type Announcer struct {
	// Leases returns the Lease for a Service, see Reader; nil where Leases cannot be read.
	Leases func(service *corev1.Service, evidence time.Time) Lease
}

var _ announcer.Announcer = Announcer{}

// Placement is announcer.OnInterface.
func (Announcer) Placement() announcer.Placement { return announcer.OnInterface }

// Elected returns the election by Leases.
func (a Announcer) Elected(service *corev1.Service, evidence time.Time) announcer.Election {
	if a.Leases == nil {
		return announcer.Election{}
	}
	return a.Leases(service, evidence).Election()
}

// Named returns the node in the annotation VIPHost.
func (Announcer) Named(service *corev1.Service) (node, annotation string) {
	return service.Annotations[VIPHost], VIPHost
}

// NeedsEndpoints says which versions announce nothing for a Service without endpoints.
func (Announcer) NeedsEndpoints() string {
	return "kube-vip 1.2 and newer announces an address only while there are some"
}

// Election returns what the Lease shows.
func (l Lease) Election() announcer.Election {
	e := announcer.Election{State: l.State, Owner: l.Holder, Shared: l.Name == l.Global, Trouble: l.trouble(),
		Read: l.Read, Error: l.Error}
	if l.Name != "" {
		e.Source = "lease " + l.Name
	}
	if l.RivalHolder != "" {
		e.Rivals = []string{l.RivalHolder}
	}
	return e
}

// trouble is a clause about what is wrong with the election itself. A missing Lease may have another name.
func (l Lease) trouble() string {
	switch {
	case l.Rival != "":
		return fmt.Sprintf("kube-vip has elected twice: the lease %s is held by Node %s, and %s by Node %s", l.Name,
			l.Holder, l.Rival, l.RivalHolder)
	case l.State == announcer.Missing:
		return fmt.Sprintf("neither kube-vip's lease %s nor the one for all Services, %s, exists", l.Name, l.Global)
	case l.State == announcer.Held, l.State == "":
		return ""
	case l.Holder != "":
		return fmt.Sprintf("kube-vip's lease %s is not renewed, which Node %s held last", l.Name, l.Holder)
	default:
		return fmt.Sprintf("kube-vip's lease %s is not renewed", l.Name)
	}
}

// Fixes returns what repairs a fault.
func (Announcer) Fixes(f announcer.Fault) []check.Fix {
	switch f.Kind {
	case announcer.Silent:
		return restart("kube-vip must run on a node that is ready for the public network")
	case announcer.OwnerSilent:
		return fixOwner(f)
	case announcer.Stale:
		return f.RemoveCarried("on this node: kube-vip leaves the address behind when it is killed")
	case announcer.Stray:
		return announcer.Advice("on the node that answers, unless the address is used on purpose: kube-vip leaves "+
			"addresses behind when it is killed", f.Remove(f.Interface))
	case announcer.Duplicate:
		return fixDuplicate(f)
	case announcer.WrongInterface:
		return announcer.Advice(fmt.Sprintf("set kube-vip's vip_interface, and the annotation "+
			"kube-vip.io/serviceInterface where the Service has it, to %s (the default is the interface of the "+
			"default route) and restart kube-vip on this node", f.Interface))
	case announcer.Unguarded:
		return fixElection(f)
	default:
		return nil
	}
}

func restart(note string) []check.Fix {
	return announcer.Advice(note,
		"kubectl --namespace kube-system get pods --output wide --selector app.kubernetes.io/name=kube-vip",
		"kubectl get nodes --label-columns phoenixnap.com/vlan-ready")
}

func fixOwner(f announcer.Fault) []check.Fix {
	if f.Here {
		return restart("restart kube-vip on this node, which adds the address again")
	}
	return restart("run phoenixnap-agent diagnose on Node " + f.Election.Owner + " and fix what it finds; if that is " +
		"only this, restart kube-vip there, which adds the address again")
}

func fixDuplicate(f announcer.Fault) []check.Fix {
	note := "on the node that does not announce it: kube-vip leaves the address behind when it is killed; the " +
		"Service's annotation " + VIPHost + " names the holder"
	switch {
	case len(f.Election.Rivals) > 0:
		note = "first set svc_election of kube-vip to the same value on all nodes; then on the node that still " +
			"announces it without the lease"
	case f.Election.State == announcer.Held:
		note = fmt.Sprintf("on the node that does not hold the %s, which is held by Node %s", f.Election.Source,
			f.Election.Owner)
	}
	return announcer.Advice(note, f.Remove(f.Interface))
}

func fixElection(f announcer.Fault) []check.Fix {
	if f.Election.State == announcer.Missing {
		return announcer.Advice("where kube-vip is not in the namespace kube-system, or has svc_leasename "+
			"(servicesLeaseName) in its environment, arguments or configuration, set --kube-vip-lease of the agent to "+
			"<namespace>/<name> of the lease in use", "kubectl get leases --all-namespaces")
	}
	return restart("run kube-vip on the node that answers; if it is to run on other nodes only, run it there and " +
		"delete the address on this one: " + f.Remove(f.Interface))
}
