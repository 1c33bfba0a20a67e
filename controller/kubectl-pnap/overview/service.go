package overview

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// Service is a Service that has an address of a phoenixNAP block, wants one or is giving one back.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Address is the public address; empty while there is none.
	Address string `json:"address,omitempty"`
	// Block is its block in CIDR notation, BlockID the API's ID of it where the controller tells it.
	Block   string `json:"block,omitempty"`
	BlockID string `json:"blockID,omitempty"`
	// On are the Nodes that answer for the address, as the agents report; more than one is a fault.
	On []string `json:"on,omitempty"`
	// Healthy is whether the address is published and answered.
	Healthy bool `json:"healthy"`
	// State is the word of the first condition that says something is left to do; Answered when nothing is.
	State string `json:"state"`
	// Since is when that began.
	Since *time.Time `json:"since,omitempty"`
	// Going is when its deletion was asked for.
	Going            *time.Time `json:"going,omitempty"`
	BlockAssigned    Verdict    `json:"blockAssigned"`
	AddressPublished Verdict    `json:"addressPublished"`
	Announced        Verdict    `json:"announced"`
}

// Message is what the condition behind State says.
func (s Service) Message() string { return s.deciding().Message }

// deciding is the first verdict in the life of an address that does not hold, else the last.
func (s Service) deciding() Verdict {
	for _, v := range []Verdict{s.BlockAssigned, s.AddressPublished, s.Announced} {
		if v.Status != "" && !v.True() {
			return v
		}
	}
	return s.Announced
}

func servicesOf(f Facts, blocks []Block) []Service {
	services := []Service{}
	for i := range f.Services {
		if s := &f.Services[i]; served(s) {
			services = append(services, serviceOf(s, f, blocks))
		}
	}
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return services
}

// served tells whether the Service is ours: it wants an address of us, or one of our conditions still says something.
func served(s *corev1.Service) bool {
	return contract.Served(s) || contract.HasOwnedConditions(s)
}

func serviceOf(s *corev1.Service, f Facts, blocks []Block) Service {
	service := Service{
		Namespace: text.Clean(s.Namespace), Name: text.Clean(s.Name),
		Address:          text.Clean(s.Annotations[contract.ServiceIPAddress]),
		Block:            text.Clean(s.Annotations[contract.ServiceIPBlock]),
		BlockAssigned:    serviceVerdict(s, contract.ServiceConditionBlockAssigned),
		AddressPublished: serviceVerdict(s, contract.ServiceConditionAddressPublished),
		Announced:        serviceVerdict(s, contract.ServiceConditionAnnounced),
	}
	if owner := s.Annotations[contract.ServiceIPOwner]; owner != "" && owner != string(s.UID) {
		service.Address, service.Block = "", "" // written for another Service: a copy, or restored from a backup
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
		service.On = holders(f.Nodes, address)
	}
	decides := service.deciding()
	service.Healthy = service.Going == nil && service.AddressPublished.True() && service.Announced.True()
	service.State, service.Since = cmp.Or(decides.Reason, "Pending"), decides.Since
	return service
}

func serviceVerdict(s *corev1.Service, conditionType string) Verdict {
	c := meta.FindStatusCondition(s.Status.Conditions, conditionType)
	if c == nil {
		return Verdict{}
	}
	return verdict(string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
}

// holders are the Nodes that carry the address or whose hardware address answers for it, as the agents report.
func holders(nodes []corev1.Node, address netip.Addr) []string {
	found := map[string]bool{}
	for i := range nodes {
		raw := nodes[i].Annotations[contract.NodeReportedAddresses]
		if !strings.Contains(raw, address.String()) {
			continue // most Nodes report few addresses; they need not be decoded
		}
		reported, err := contract.ParseReportedAddresses(raw)
		if err != nil {
			continue
		}
		switch entry, watched := reported[address]; {
		case !watched || entry.State != contract.AddressAnswered && entry.State != contract.AddressDuplicate:
		case entry.Held:
			found[text.Clean(nodes[i].Name)] = true
		default:
			if name := nodeOfMAC(nodes, entry.MAC); name != "" {
				found[name] = true
			}
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func nodeOfMAC(nodes []corev1.Node, mac string) string {
	for i := range nodes {
		raw := nodes[i].Annotations[contract.NodeReportedIdentity]
		var id contract.Identity
		if mac != "" && strings.Contains(raw, mac) && json.Unmarshal([]byte(raw), &id) == nil && slices.Contains(id.MACs, mac) {
			return text.Clean(nodes[i].Name)
		}
	}
	return ""
}
