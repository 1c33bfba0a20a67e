package allocation

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// Reasons of the events on IPBlocks. The text is that of the condition Assigned, but for the purchase.
const (
	// eventBought (Normal): the block was bought.
	eventBought = "IPBlockBought"
	// eventAssigning (Normal): the block is being assigned to the public network.
	eventAssigning = "IPBlockAssigning"
	// eventAssigned (Normal): the block is assigned.
	eventAssigned = "IPBlockAssigned"
	// eventUnassigning (Normal): the block is being taken off the public network.
	eventUnassigning = "IPBlockUnassigning"
	// eventRetained (Normal): the block outlives the address of its Service.
	eventRetained = "IPBlockRetained"
	// eventUnusable (Warning): the block is not where it is needed, or not in the account; says what is wrong.
	eventUnusable = "IPBlockUnusable"
)

// events are the reason of the event for each reason of the condition Assigned that is worth one.
var events = map[string]string{
	string(ipblock.BlockAssigning):   eventAssigning,
	string(ipblock.BlockAssigned):    eventAssigned,
	string(ipblock.BlockUnassigning): eventUnassigning,
	v1beta1.AssignedRetained:         eventRetained,
	v1beta1.AssignedNotFound:         eventUnusable,
	string(ipblock.BlockElsewhere):   eventUnusable,
	string(ipblock.BlockInError):     eventUnusable,
	string(ipblock.BlockLost):        eventUnusable,
	string(ipblock.BlockRetagged):    eventUnusable,
	string(ipblock.BlockUnusable):    eventUnusable,
}

// reporting is IPBlocks that record events on the objects. It compares what is written with what it saw last, which is
// what that was made from: no one else writes these fields.
type reporting struct {
	IPBlocks
	events record.EventRecorder

	mu   sync.Mutex
	seen map[types.UID]sight
}

// sight is what events are about.
type sight struct{ block, reason string }

// WithEvents returns objects whose purchases and assignments are also events on them. It makes no calls.
func WithEvents(objects IPBlocks, events record.EventRecorder) IPBlocks {
	return &reporting{IPBlocks: objects, events: events, seen: map[types.UID]sight{}}
}

// Reference is an IPBlock as the object of events.
func Reference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "IPBlock", Name: name, UID: uid}
}

// List implements IPBlocks.
func (r *reporting) List(ctx context.Context, o metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	list, err := r.IPBlocks.List(ctx, o)
	if err != nil {
		return nil, err
	}
	seen := make(map[types.UID]sight, len(list.Items))
	for i := range list.Items {
		seen[list.Items[i].UID] = sightOf(&list.Items[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = seen
	return list, nil
}

// Update implements IPBlocks.
func (r *reporting) Update(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions) (*v1beta1.IPBlock,
	error) {
	stored, err := r.IPBlocks.Update(ctx, object, o)
	if err != nil {
		return nil, err
	}
	if r.see(stored).block == "" && stored.Spec.BlockID != "" {
		r.events.Eventf(Reference(stored.Name, stored.UID), corev1.EventTypeNormal, eventBought, "Bought IP block %s",
			stored.Spec.BlockID)
	}
	return stored, nil
}

// UpdateStatus implements IPBlocks.
func (r *reporting) UpdateStatus(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions) (
	*v1beta1.IPBlock, error) {
	stored, err := r.IPBlocks.UpdateStatus(ctx, object, o)
	if err != nil {
		return nil, err
	}
	assigned := meta.FindStatusCondition(stored.Status.Conditions, v1beta1.ConditionAssigned)
	if assigned == nil || r.see(stored).reason == assigned.Reason || events[assigned.Reason] == "" {
		return stored, nil
	}
	kind := corev1.EventTypeNormal
	if events[assigned.Reason] == eventUnusable {
		kind = corev1.EventTypeWarning
	}
	r.events.Event(Reference(stored.Name, stored.UID), kind, events[assigned.Reason], assigned.Message)
	return stored, nil
}

// see remembers an object and returns what was seen of it before.
func (r *reporting) see(object *v1beta1.IPBlock) (before sight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.seen[object.UID]
	r.seen[object.UID] = sightOf(object)
	return before
}

func sightOf(object *v1beta1.IPBlock) sight {
	s := sight{block: object.Spec.BlockID}
	if assigned := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAssigned); assigned != nil {
		s.reason = assigned.Reason
	}
	return s
}
