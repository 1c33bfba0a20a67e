package overview

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Service is a Service that has, requests or is releasing an address of a phoenixNAP block.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Address   string `json:"address,omitempty"` // the public address; empty until the Service has one
	// Block is its block in CIDR notation, BlockID the block's ID in the API where the controller reports it.
	Block   string `json:"block,omitempty"`
	BlockID string `json:"blockID,omitempty"`
	// On are the Nodes that answer for the address now, as the agents that are alive report; more than one is a fault.
	On []string `json:"on,omitempty"`
	// Outdated reports that all agents that reported an answer have not shown for a while that they run.
	Outdated bool `json:"outdated,omitempty"`
	Healthy  bool `json:"healthy"` // whether the address is published and answered
	// State is the reason of the first condition that does not hold; Answered when all hold.
	State            string     `json:"state"`
	Since            *time.Time `json:"since,omitempty"` // when that began
	Going            *time.Time `json:"going,omitempty"` // when its deletion was requested
	BlockAssigned    Condition  `json:"blockAssigned"`
	AddressPublished Condition  `json:"addressPublished"`
	Announced        Condition  `json:"announced"`
}

// Reported reports whether the controller has written a condition on the Service.
func (s Service) Reported() bool {
	return s.BlockAssigned.Status != "" || s.AddressPublished.Status != "" || s.Announced.Status != ""
}

// Message is the message of the condition behind State.
func (s Service) Message() string { return s.deciding().Message }

// deciding returns the first condition, in the order of an address's life, that does not hold, else the last.
func (s Service) deciding() Condition {
	for _, v := range []Condition{s.BlockAssigned, s.AddressPublished, s.Announced} {
		if v.Status != "" && !v.True() {
			return v
		}
	}
	return s.Announced
}

func servicesOf(f Facts, blocks []Block) []Service {
	services := []Service{}
	for i := range f.Services {
		if s := &f.Services[i]; contract.Served(&s.Spec) || contract.HasOwnedConditions(s) {
			services = append(services, serviceOf(s, f, blocks))
		}
	}
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return services
}

func serviceOf(s *corev1.Service, f Facts, blocks []Block) Service {
	service := Service{
		Namespace: text.Clean(s.Namespace), Name: text.Clean(s.Name),
		Address:          text.Clean(s.Annotations[contract.ServiceIPAddress]),
		Block:            text.Clean(s.Annotations[contract.ServiceIPBlockCIDR]),
		BlockAssigned:    serviceCondition(s, contract.ServiceConditionBlockAssigned),
		AddressPublished: serviceCondition(s, contract.ServiceConditionAddressPublished),
		Announced:        serviceCondition(s, contract.ServiceConditionAnnounced),
	}
	if owner := s.Annotations[contract.ServiceIPOwner]; owner != "" && owner != string(s.UID) {
		// Written for another Service: this one is a copy, or was restored from a backup.
		service.Address = ""
		service.Block = ""
	}
	if s.DeletionTimestamp != nil {
		going := s.DeletionTimestamp.UTC()
		service.Going = &going
	}
	for _, b := range blocks {
		if service.Block != "" && b.CIDR == service.Block {
			service.BlockID = b.ID
		}
	}
	if address, err := netip.ParseAddr(service.Address); err == nil {
		service.On = f.answering(address)
		service.Outdated = len(service.On) == 0 && f.wasAnswered(address)
	}
	decisive := service.deciding()
	service.Healthy = service.Going == nil && service.AddressPublished.True() && service.Announced.True()
	service.State = cmp.Or(decisive.Reason, "Pending")
	service.Since = decisive.Since
	return service
}

func serviceCondition(s *corev1.Service, conditionType string) Condition {
	c := meta.FindStatusCondition(s.Status.Conditions, conditionType)
	if c == nil {
		return Condition{}
	}
	return newCondition(string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
}

// answering returns the Nodes that answer for the address now: the latest report of an answer says which. Several only
// if an agent hears more than one machine.
func (f Facts) answering(address netip.Addr) []string {
	all := reports.Of(f.current(), address)
	nodes := pointers(f.Nodes)
	if len(reports.Reporting(all, contract.AddressDuplicate)) == 0 {
		return machines(nodes, reports.LatestAnswer(all))
	}
	return machines(nodes, slices.DeleteFunc(all, func(r reports.Report) bool {
		return r.State == contract.AddressSilent
	})...)
}

// wasAnswered reports whether an agent has ever reported that the address is answered, and not taken that back.
func (f Facts) wasAnswered(address netip.Addr) bool {
	return reports.LatestAnswer(reports.Of(pointers(f.Nodes), address)).Node != ""
}

// pointers returns the Nodes as the packages of the controller take them.
func pointers(nodes []corev1.Node) []*corev1.Node {
	all := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
	}
	return all
}

// machines are the Nodes that answer by these reports, each once.
func machines(nodes []*corev1.Node, reports ...reports.Report) []string {
	var found []string
	for _, r := range reports {
		if name := r.Machine(nodes); name != "" {
			found = append(found, text.Clean(name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
