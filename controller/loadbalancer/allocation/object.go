package allocation

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// Objects are the IPBlocks on the API server.
type Objects interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*v1beta1.IPBlock, error)
	Create(ctx context.Context, object *v1beta1.IPBlock, options metav1.CreateOptions) (*v1beta1.IPBlock, error)
	Update(ctx context.Context, object *v1beta1.IPBlock, options metav1.UpdateOptions) (*v1beta1.IPBlock, error)
	UpdateStatus(ctx context.Context, object *v1beta1.IPBlock, options metav1.UpdateOptions) (*v1beta1.IPBlock, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// Object is the IPBlock in which the purchase of one block is recorded, and which block that became. It serves one
// decision, and is not safe for concurrent use. Its errors are ErrConflict where the object is not the version any more
// on which that was made, else those of the API server.
type Object struct {
	objects Objects
	// record is what was known of the object when the decision was made; of another one than fresh, it is given up.
	record ipblock.Record
	// fresh is the object to create where there is none.
	fresh *v1beta1.IPBlock
}

// ForService returns the record of the block of a Service in a public network. It makes no calls, like ForShared and
// ForNodes.
func ForService(objects Objects, network string, service ipblock.Holder, known ipblock.Records) *Object {
	fresh := bought(v1beta1.ServicePrefix+service.UID, network, v1beta1.PurposeService)
	fresh.Spec.ServiceRef = &v1beta1.ServiceReference{Namespace: service.Namespace, Name: service.Name,
		UID: types.UID(service.UID)}
	return objectOf(objects, fresh, known)
}

// ForShared returns the record of the next block that Services of a public network share: of the purchase that has no
// answer, else a new one.
func ForShared(objects Objects, network string, known ipblock.Records) *Object {
	name := next(v1beta1.SharedPrefix(network), false, known)
	return objectOf(objects, bought(name, network, v1beta1.PurposeShared), known)
}

// ForNodes is ForShared for a block of which nodes get addresses.
func ForNodes(objects Objects, network string, known ipblock.Records) *Object {
	name := next(v1beta1.NodesPrefix(network), true, known)
	return objectOf(objects, bought(name, network, v1beta1.PurposeNodes), known)
}

func objectOf(objects Objects, fresh *v1beta1.IPBlock, known ipblock.Records) *Object {
	o := &Object{objects: objects, fresh: fresh}
	if i := slices.IndexFunc(known, func(r ipblock.Record) bool { return r.Name == fresh.Name }); i >= 0 {
		o.record = known[i]
	}
	return o
}

// next is the name of the record without an answer, else of one that a person has ordered, else the first that is free.
func next(prefix string, nodes bool, known ipblock.Records) string {
	if last, found := known.Last(nodes); found && last.BlockID == "" {
		return last.Name
	}
	if ordered, found := known.Ordered(); found && !nodes {
		return ordered.Name
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s%d", prefix, n)
		if !slices.ContainsFunc(known, func(r ipblock.Record) bool { return r.Name == name }) {
			return name
		}
	}
}

func bought(name, network string, purpose v1beta1.Purpose) *v1beta1.IPBlock {
	return &v1beta1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.IPBlockSpec{Attachment: attachedTo(network), Source: v1beta1.SourceBought,
			Purpose: purpose},
	}
}

// ordered reports whether a person orders a block with the object.
func ordered(object *v1beta1.IPBlock) bool {
	return !isOwn(object) && object.Spec.Source != v1beta1.SourceBrought &&
		object.Spec.Purpose == v1beta1.PurposeShared
}

// RecordOf is what an object records. Objects that the controller does not name record nothing unless they order a
// block, and neither do those of brought blocks.
func RecordOf(object *v1beta1.IPBlock) (ipblock.Record, bool) {
	if object.Spec.Source == v1beta1.SourceBrought || !isOwn(object) && !ordered(object) {
		return ipblock.Record{}, false
	}
	return recordOf(object), true
}

func recordOf(object *v1beta1.IPBlock) ipblock.Record {
	r := ipblock.Record{Name: object.Name, Network: networkOf(object), Version: object.ResourceVersion,
		UID: string(object.UID), Created: object.CreationTimestamp.Time,
		Nodes:     object.Spec.Purpose == v1beta1.PurposeNodes,
		Purchase:  purchaseOf(object),
		Allocated: object.Status.Allocations != nil && len(*object.Status.Allocations) > 0, Report: reportOf(object),
		Deleted: object.DeletionTimestamp != nil, Unprotected: !hasFinalizer(object), Ordered: ordered(object)}
	r.Namespaces = object.Spec.AllowedNamespaces
	r.Holders, r.Groups = holdersIn(object)
	r.Kept = r.Ordered || object.Spec.ReclaimPolicy == v1beta1.ReclaimRetain
	// The definition allows no other sizes; without one, it is the default.
	r.Size, _ = ipblock.ParseSize(object.Spec.Size)
	if ref := object.Spec.ServiceRef; object.Spec.Purpose == v1beta1.PurposeService && ref != nil {
		uid := cmp.Or(string(ref.UID), strings.TrimPrefix(object.Name, v1beta1.ServicePrefix))
		r.Service = ipblock.Holder{Namespace: ref.Namespace, Name: ref.Name, UID: uid}
	}
	return r
}

// holdersIn are the Services that have an address of a block, and the names of those that have one together.
func holdersIn(object *v1beta1.IPBlock) (all []ipblock.Holder, groups []string) {
	if object.Status.Allocations == nil {
		return nil, nil
	}
	for _, allocated := range *object.Status.Allocations {
		for _, s := range allocated.Services {
			all = append(all, ipblock.Holder{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)})
		}
		if allocated.SharedAs != "" {
			groups = append(groups, allocated.SharedAs)
		}
	}
	return all, groups
}

// purchaseOf is the purchase of an object. The UID of the object and the number of the attempt are the nonce: neither
// is ever that of another purchase.
func purchaseOf(object *v1beta1.IPBlock) ipblock.Purchase {
	p := ipblock.Purchase{BlockID: object.Spec.BlockID}
	if last := object.Status.Purchase; last != nil {
		p.Nonce = fmt.Sprintf("%s-%d", object.UID, last.Attempt)
		p.Time = last.Time.UTC()
	}
	return p
}

// Size is the size of the block that a person has ordered with the object; 0 for none.
func (o *Object) Size() ipblock.Size { return o.record.Size }

// Begin records the intent to buy a block of a size.
func (o *Object) Begin(ctx context.Context, at time.Time, size ipblock.Size) (ipblock.Purchase, error) {
	o.fresh.Spec.Size = size.String()
	object, err := o.vacant(ctx)
	if err != nil {
		return ipblock.Purchase{}, err
	}
	attempt := v1beta1.Purchase{Attempt: 1, Time: metav1.NewMicroTime(at.Truncate(time.Microsecond))}
	if last := object.Status.Purchase; last != nil {
		attempt.Attempt = last.Attempt%math.MaxInt32 + 1 // a person may have written any
	}
	object.Status.Purchase = &attempt
	stored, err := o.objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return ipblock.Purchase{}, failed("save", o.fresh.Name, err)
	}
	kept := stored.Status.Purchase
	if kept == nil || kept.Attempt != attempt.Attempt || !kept.Time.Time.Equal(attempt.Time.Time) {
		return ipblock.Purchase{}, client.NotKept("status", stored.Name)
	}
	return purchaseOf(stored), nil
}

// vacant is the stored object, which names no block. An object that names one never buys: it is replaced, so that the
// next purchase has another nonce.
func (o *Object) vacant(ctx context.Context) (*v1beta1.IPBlock, error) {
	if o.record.Version == "" {
		return o.create(ctx)
	}
	object, err := o.current(ctx)
	if err != nil {
		return nil, err
	}
	if object.Spec.BlockID == "" && (object.Spec.Size == o.fresh.Spec.Size || o.record.Ordered) {
		if o.record.Unprotected { // the finalizer stands before the intent
			object, err = o.objects.Update(ctx, object, metav1.UpdateOptions{})
		}
		return object, failed("save", o.fresh.Name, err)
	}
	if err := o.Forget(ctx); err != nil {
		return nil, err
	}
	return o.create(ctx)
}

func (o *Object) create(ctx context.Context) (*v1beta1.IPBlock, error) {
	created, err := o.objects.Create(ctx, o.fresh, metav1.CreateOptions{})
	if err != nil {
		return nil, failed("create", o.fresh.Name, err)
	}
	return created, nil
}

// current is the stored object, if it is the version on which the decision was made.
func (o *Object) current(ctx context.Context) (*v1beta1.IPBlock, error) {
	object, err := o.objects.Get(ctx, o.fresh.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, failed("read", o.fresh.Name, err)
	case object.ResourceVersion != o.record.Version:
		return nil, fmt.Errorf("IPBlock %s: %w", object.Name, ErrConflict)
	}
	return object, nil
}

// Answer records which block it is. A record of another block, which is gone, is given up.
func (o *Object) Answer(ctx context.Context, blockID string) error {
	if o.record.Version != "" && o.record.BlockID == "" {
		object, err := o.current(ctx)
		if err != nil {
			return err
		}
		object.Spec.BlockID = blockID
		_, err = o.objects.Update(ctx, object, metav1.UpdateOptions{})
		return failed("save", o.fresh.Name, err)
	}
	if err := o.Forget(ctx); err != nil {
		return err
	}
	o.fresh.Spec.BlockID = blockID
	_, err := o.create(ctx)
	return err
}

// Forget removes the record, if it is the version on which the decision was made. That there is none is no error.
func (o *Object) Forget(ctx context.Context) error {
	if o.record.Version == "" {
		return nil
	}
	return Remove(ctx, o.objects, o.record)
}

// Remove removes a record, if it is the version that was read, else ErrConflict. That there is none is no error. The
// address of a Service is taken out first: a policy refuses to delete an object with one.
func Remove(ctx context.Context, objects Objects, r ipblock.Record) error {
	if r.Allocated && r.Service.UID != "" {
		object, err := objects.Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return client.Explain("read IPBlock "+r.Name, err)
		}
		object.ResourceVersion = r.Version
		object.Status.Allocations = nil
		if object, err = objects.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
			return failed("save", r.Name, err)
		}
		r.Version = object.ResourceVersion
	}
	err := objects.Delete(ctx, r.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &r.Version}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return failed("delete", r.Name, err)
}

// Protect gives the object of a record its finalizer again.
func Protect(ctx context.Context, objects Objects, r ipblock.Record) error {
	object, err := objects.Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return failed("read", r.Name, err)
	}
	_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
	return failed("save", r.Name, err)
}

// Bought records the answer to an intent. The intent of someone else stays, which is no error; so with Unanswered and
// TakeBack.
func (o *Object) Bought(ctx context.Context, intent ipblock.Purchase, blockID string) error {
	return o.amend(ctx, intent, func(object *v1beta1.IPBlock) error {
		object.Spec.BlockID = blockID
		_, err := o.objects.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// Unanswered records when it was clear that an intent has no answer.
func (o *Object) Unanswered(ctx context.Context, intent ipblock.Purchase, at time.Time) error {
	return o.amend(ctx, intent, func(object *v1beta1.IPBlock) error {
		object.Status.Purchase.Time = metav1.NewMicroTime(at)
		_, err := o.objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// TakeBack records that nothing was bought.
func (o *Object) TakeBack(ctx context.Context, intent ipblock.Purchase) error {
	return o.amend(ctx, intent, func(object *v1beta1.IPBlock) error {
		if ordered(object) {
			object.Status.Purchase = nil
			_, err := o.objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
			return err
		}
		return o.objects.Delete(ctx, object.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{ResourceVersion: &object.ResourceVersion}})
	})
}

// amend changes the object of an intent, also when it changed otherwise meanwhile. The intent of someone else stays.
func (o *Object) amend(ctx context.Context, intent ipblock.Purchase, write func(*v1beta1.IPBlock) error) error {
	const tries = 5
	var err error
	for range tries {
		object, failure := o.objects.Get(ctx, o.fresh.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(failure) {
			return nil
		}
		if failure != nil {
			return failed("read", o.fresh.Name, failure)
		}
		if purchaseOf(object).Nonce != intent.Nonce {
			return nil
		}
		if err = write(object); !apierrors.IsConflict(err) {
			break
		}
	}
	return failed("save", o.fresh.Name, err)
}

// failed names the object of a failure. That it is another one than was decided on is ErrConflict.
func failed(action, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && !client.Undefined(err):
		return fmt.Errorf("%s IPBlock %s: %w (%w)", action, name, ErrConflict, err)
	default:
		return client.Explain(action+" IPBlock "+name, err)
	}
}
