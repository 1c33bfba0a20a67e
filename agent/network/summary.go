//go:build linux

package network

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodestate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// writer writes to the Node, see conditions.Publisher.
type writer interface {
	Set(c conditions.Condition)
	Annotate(key, value string)
}

// summary combines what the networks of a Node report: the Node has one condition of each type, one identity and one
// list of addresses.
type summary struct {
	node writer

	mu sync.Mutex
	// networks are the IDs of those that run, the first one of the list first.
	networks   []string
	outcomes   map[corev1.NodeConditionType]map[string]check.Outcome
	identities map[string]contract.Identity
	addresses  map[string]contract.ReportedAddresses
}

func newSummary(node writer) *summary {
	return &summary{
		node: node, outcomes: map[corev1.NodeConditionType]map[string]check.Outcome{
			contract.ConditionVLANReady: {}, contract.ConditionAnnouncementHealthy: {}},
		identities: map[string]contract.Identity{}, addresses: map[string]contract.ReportedAddresses{},
	}
}

// setNetworks says which networks there are. What others have reported is forgotten.
func (s *summary) setNetworks(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.networks, ids) {
		return
	}
	s.networks = slices.Clone(ids)
	for _, all := range s.outcomes {
		keepOnly(all, ids)
	}
	keepOnly(s.identities, ids)
	keepOnly(s.addresses, ids)
	for condition := range s.outcomes {
		s.writeOutcome(condition)
	}
	s.writeIdentity()
	s.writeAddresses()
}

// order returns the IDs of the networks that run.
func (s *summary) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.networks
}

func keepOnly[T any](all map[string]T, ids []string) {
	maps.DeleteFunc(all, func(id string, _ T) bool { return !slices.Contains(ids, id) })
}

// reporter takes what one network reports.
type reporter struct {
	*summary
	id string
}

var _ nodestate.Reporter = reporter{}

// take notes a report of a network that runs, and writes what follows.
func take[T any](r reporter, all map[string]T, report T, write func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.networks, r.id) {
		all[r.id] = report
		write()
	}
}

// Outcome takes what becomes of a condition by this network.
func (r reporter) Outcome(condition corev1.NodeConditionType, o check.Outcome) {
	take(r, r.outcomes[condition], o, func() {
		r.writeOutcome(condition)
		r.writeIdentity()
	})
}

// Identity takes the identity of the machine as the sample of this network shows it.
func (r reporter) Identity(id contract.Identity) { take(r, r.identities, id, r.writeIdentity) }

// Addresses takes what the node reports of the addresses of this network.
func (r reporter) Addresses(a contract.ReportedAddresses) { take(r, r.addresses, a, r.writeAddresses) }

func (s *summary) writeOutcome(condition corev1.NodeConditionType) {
	if o, ok := combined(s.networks, s.outcomes[condition]); ok {
		s.node.Set(conditions.Condition{Type: condition, Status: statusOf(o.Status), Reason: o.Reason,
			Message: o.Message})
	}
}

// combined is the outcome for the Node: the worst of its networks, with a message that names those. ok is false while
// it is not known: a failure is one of the Node whatever the others report, else all must have reported.
func combined(networks []string, outcomes map[string]check.Outcome) (o check.Outcome, ok bool) {
	if len(networks) == 1 {
		o, ok = outcomes[networks[0]]
		return o, ok
	}
	var worst []string
	for _, id := range networks {
		each, reported := outcomes[id]
		switch {
		case !reported:
			continue
		case len(worst) == 0 || badness(each) > badness(o):
			o = each
			worst = nil
		case badness(each) < badness(o):
			continue
		default:
		}
		worst = append(worst, "network "+id+": "+each.Message)
	}
	o.Message = strings.Join(worst, "; ")
	return o, len(worst) > 0 && (o.Status == check.Fail || len(outcomes) == len(networks))
}

// badness orders outcomes by the status of the condition that they become.
func badness(o check.Outcome) int {
	return slices.Index([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse},
		statusOf(o.Status))
}

func statusOf(status check.Status) corev1.ConditionStatus {
	switch status {
	case check.OK:
		return corev1.ConditionTrue
	case check.Fail:
		return corev1.ConditionFalse
	default:
		return corev1.ConditionUnknown
	}
}

// writeIdentity writes the identity with the interfaces of all networks and their hardware addresses: each VLAN
// interface may have one of its own. Networks that have not reported yet would be missing.
func (s *summary) writeIdentity() {
	if len(s.identities) < len(s.networks) {
		return
	}
	all := s.identities[s.networks[0]]
	all.VLANInterfaces = map[string]contract.VLANInterface{}
	for _, network := range s.networks {
		for id, i := range s.identities[network].VLANInterfaces {
			i.Ready = len(s.networks) > 1 && s.outcomes[contract.ConditionVLANReady][network].Status == check.OK
			all.VLANInterfaces[id] = i
		}
		all.MACs = merged(strings.Compare, all.MACs, s.identities[network].MACs)
		all.Addresses = merged(netip.Addr.Compare, all.Addresses, s.identities[network].Addresses)
	}
	// Strings and addresses always encode.
	if raw, err := json.Marshal(all); err == nil {
		s.node.Annotate(contract.NodeReportedIdentity, string(raw))
	}
}

// merged returns both lists sorted, each value once, and no more than one list may have.
func merged[T comparable](compare func(a, b T) int, a, b []T) []T {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compare)
	all = slices.Compact(all)
	return all[:min(len(all), nodestate.IdentityLimit)]
}

// writeAddresses writes the reports of all networks. What an earlier agent reported stays until all have.
func (s *summary) writeAddresses() {
	if len(s.addresses) < len(s.networks) {
		return
	}
	all := contract.ReportedAddresses{}
	for _, reported := range s.addresses {
		maps.Copy(all, reported)
	}
	// Addresses, words and times always encode.
	if raw, err := vip.MostImportant(all).Encode(); err == nil {
		s.node.Annotate(contract.NodeReportedAddresses, raw)
	}
}
