package overview

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Block is an IP block that was bought for the cluster or brought to it.
type Block struct {
	ID         string `json:"id"`
	CIDR       string `json:"cidr"`
	Location   string `json:"location,omitempty"`
	Status     string `json:"status,omitempty"` // the status in the API; empty when the controller reported none
	AssignedTo string `json:"assignedTo,omitempty"`
	For        string `json:"for"` // what the block is for
	// Standing is how the block is used: in-use, checking, brought, retained, orphan, leftover, empty or unclear; or
	// unknown when the controller has not reported it.
	Standing string     `json:"standing"`
	Created  *time.Time `json:"created,omitempty"`
	// Unused is the time since when the block is unused, as far as the controller has observed.
	Unused *time.Time `json:"unused,omitempty"`
	// Retain reports that the block outlives its Service, or did.
	Retain bool `json:"retain,omitempty"`
	// Unusable reports that no address of it can be given: it is divided, or its status is not known.
	Unusable bool `json:"unusable,omitempty"`
	// Held reports that the controller does not delete the orphan until a person confirms it.
	Held bool `json:"held,omitempty"`
	// Used, Quarantined (in quarantine) and Free count its addresses. All those of a dedicated block belong to its
	// Service.
	Used        int `json:"used"`
	Quarantined int `json:"quarantined"`
	Free        int `json:"free"`
	// Uncounted reports that nothing read from the cluster shows which of its addresses are in use.
	Uncounted bool `json:"uncounted,omitempty"`
	// IPBlock is the name by which Services name a brought block.
	IPBlock string `json:"ipBlock,omitempty"`
	// Holders maps the addresses of a shared or brought block to their owners.
	Holders map[netip.Addr]string `json:"holders,omitempty"`
}

// Releasable reports whether the block is paid for and unused.
func (b Block) Releasable() bool {
	switch b.Standing {
	case contract.StandingInUse, contract.StandingBrought, contract.StandingChecking, standingUnknown:
		return false
	default:
		return true
	}
}

// blocksOf joins the controller's report with the ledgers, from which it adds blocks: the report may be old or missing.
func blocksOf(f Facts) []Block {
	blocks := []Block{}
	ledgers := map[string]plan.Ledger{}
	for _, l := range f.Ledgers {
		ledgers[l.BlockID] = l
	}
	if f.Report != nil {
		for _, r := range f.Report.Blocks {
			b := reported(r, f)
			if l, ok := ledgers[r.ID]; ok {
				b.count(l)
				delete(ledgers, r.ID)
			} else {
				b.Uncounted = uncounted(r, f)
			}
			blocks = append(blocks, b)
		}
	}
	for _, l := range ledgers {
		b := Block{
			ID: text.Clean(l.BlockID), CIDR: l.CIDR.String(), For: "addresses of Services or nodes",
			Standing: standingUnknown,
		}
		b.count(l)
		if b.Used > 0 {
			b.Standing = contract.StandingInUse
		}
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b Block) int {
		return cmp.Or(compareCIDR(a.CIDR, b.CIDR), cmp.Compare(a.ID, b.ID))
	})
	return blocks
}

// standingUnknown is the standing of a block that the controller has not reported, and that holds no address.
const standingUnknown = "unknown"

// uncounted reports whether the use of a block without allocations is unknown. A block of one Service has none, and
// the addresses of nodes are not among them.
func uncounted(r contract.ReportedBlock, f Facts) bool {
	switch r.Purpose {
	case contract.PurposeService:
		return false
	case contract.PurposeNodes:
		return true
	default:
		return slices.Contains(f.Unread, PartAllocations)
	}
}

func compareCIDR(a, b string) int {
	p, errA := netip.ParsePrefix(a)
	q, errB := netip.ParsePrefix(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return p.Addr().Compare(q.Addr())
}

func (b *Block) count(l plan.Ledger) {
	b.Used, b.Quarantined, b.Free = l.Count()
	b.Holders = map[netip.Addr]string{}
	for address, holder := range l.Held {
		b.Holders[address] = text.Clean(holder.String())
	}
}

func reported(r contract.ReportedBlock, f Facts) Block {
	b := Block{
		ID: text.Clean(r.ID), Location: text.Clean(r.Location), Status: text.Clean(r.Status),
		AssignedTo: text.Clean(r.AssignedTo), For: text.Clean(purpose(r, f.Services)),
		Standing: text.Clean(r.Standing), Created: r.Created, Unused: r.Since, Held: r.Held,
		Retain: r.Retain, Unusable: r.Unusable, IPBlock: ipBlock(r.ID, f.Brought),
	}
	if b.Unusable {
		b.For += ", unusable: " + b.Status
	}
	if r.CIDR.IsValid() {
		b.CIDR = r.CIDR.String()
	}
	if r.Purpose == contract.PurposeService && r.Standing == contract.StandingInUse {
		b.Used = 1
	}
	return b
}

// ipBlock is the name of the first IPBlock with which a person brought a block; empty when there is none.
func ipBlock(id string, brought plan.BroughtBlocks) string {
	for _, b := range brought {
		if b.BlockID == id {
			return text.Clean(b.Object)
		}
	}
	return ""
}

// purpose describes what a block is for. A tag has no "/", and a long one is cut, so it searches for a Service first.
func purpose(r contract.ReportedBlock, services []corev1.Service) string {
	switch r.Purpose {
	case contract.PurposeService:
		for i := range services {
			if contract.ServiceTag(services[i].Namespace, services[i].Name) == r.Name {
				return "Service " + services[i].Namespace + "/" + services[i].Name
			}
		}
		return "Service " + strings.Replace(r.Name, "_", "/", 1)
	case contract.PurposePool:
		return "pool " + r.Name
	case contract.PurposeNodes:
		return "nodes"
	default:
		if r.Standing == contract.StandingBrought {
			return "Services that request it"
		}
		return "unknown"
	}
}
