package overview

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Block is an IP block that the cluster uses, or pays for, as its IPBlock shows it.
type Block struct {
	IPBlock  string `json:"ipBlock"`      // the name of the object
	ID       string `json:"id,omitempty"` // the ID in the API; empty until the block is bought
	CIDR     string `json:"cidr,omitempty"`
	Location string `json:"location,omitempty"`
	For      string `json:"for"`      // what the block is for
	Standing string `json:"standing"` // one of the standings
	// Reason and Message are those of the condition Orphaned while it is True, else of Ready.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Created time.Time `json:"created"` // when the object was created
	// Unused is the time since when the block is an orphan, as far as the controller has observed.
	Unused *time.Time `json:"unused,omitempty"`
	// Used is how many addresses are allocated, and of how many; empty when that is not known.
	Used string `json:"used,omitempty"`
	// Quarantined is how many more cannot be allocated yet.
	Quarantined int `json:"quarantined"`
}

// Standings of a block.
const (
	standingInUse    = "in-use"   // an address of it is allocated
	standingFree     = "free"     // no address of it is allocated
	standingRetained = "retained" // it outlives its Service, because a user wants to keep it
	standingOrphan   = "orphan"   // it is paid for and not used
	standingWaiting  = "waiting"  // it is not bought yet
	standingDeleting = "deleting" // its object is being deleted
)

func blocksOf(f Facts) []Block {
	blocks := make([]Block, 0, len(f.Blocks))
	for i := range f.Blocks {
		blocks = append(blocks, blockOf(&f.Blocks[i]))
	}
	slices.SortFunc(blocks, func(a, b Block) int {
		return cmp.Or(compareCIDR(a.CIDR, b.CIDR), cmp.Compare(a.IPBlock, b.IPBlock))
	})
	return blocks
}

func compareCIDR(a, b string) int {
	p, errA := netip.ParsePrefix(a)
	q, errB := netip.ParsePrefix(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return p.Addr().Compare(q.Addr())
}

func blockOf(object *v1beta1.IPBlock) Block {
	b := Block{
		IPBlock: text.Clean(object.Name), ID: text.Clean(object.Spec.BlockID), CIDR: text.Clean(object.Status.CIDR),
		Location: text.Clean(object.Status.Location), For: text.Clean(purpose(object)), Standing: standingOf(object),
		Created: object.CreationTimestamp.UTC(), Quarantined: len(object.Status.Quarantined),
	}
	if object.Status.Allocations != nil {
		b.Used = text.Clean(object.Status.Used)
	}
	shown := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionReady)
	if orphaned := orphanedOf(object); orphaned != nil {
		since := orphaned.LastTransitionTime.UTC()
		b.Unused = &since
		shown = orphaned
	}
	if shown != nil {
		b.Reason = text.Clean(shown.Reason)
		b.Message = text.Clean(shown.Message)
	}
	return b
}

// orphanedOf is the condition Orphaned if it is True; nil when it is not.
func orphanedOf(object *v1beta1.IPBlock) *metav1.Condition {
	orphaned := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionOrphaned)
	if orphaned == nil || orphaned.Status != metav1.ConditionTrue {
		return nil
	}
	return orphaned
}

func standingOf(object *v1beta1.IPBlock) string {
	assigned := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAssigned)
	switch allocations := object.Status.Allocations; {
	case object.DeletionTimestamp != nil:
		return standingDeleting
	case orphanedOf(object) != nil:
		return standingOrphan
	case assigned != nil && assigned.Reason == v1beta1.AssignedRetained:
		return standingRetained
	case object.Spec.BlockID == "":
		return standingWaiting
	case allocations != nil && len(*allocations) > 0:
		return standingInUse
	default:
		return standingFree
	}
}

// purpose describes what a block is for.
func purpose(object *v1beta1.IPBlock) string {
	switch ref := object.Spec.ServiceRef; {
	case ref != nil && object.Spec.Purpose == v1beta1.PurposeService:
		return "Service " + ref.Namespace + "/" + ref.Name
	case object.Spec.Purpose == v1beta1.PurposeService:
		return "the Service that names " + object.Name
	case object.Spec.Purpose == v1beta1.PurposeNodes:
		return "nodes"
	case object.Spec.Source == v1beta1.SourceBrought:
		return "Services that name " + object.Name
	default:
		return "Services"
	}
}
