// Package allocation stores what is known of IP blocks: for what each was bought, and who holds which address of it. It
// is in one IPBlock for each block, changed by compare-and-swap.
package allocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var (
	// ErrConflict says that what is stored is not what was read: read it again and decide again.
	ErrConflict = errors.New("the IPBlock was changed meanwhile")
	// ErrNotFound says that nothing is stored of the block.
	ErrNotFound = errors.New("no ledger is stored")
	// ErrUnreadable says that what is stored of the block is no ledger. A person must repair it.
	ErrUnreadable = errors.New("the ledger cannot be read")
)

// IPBlocks are the objects on the API server.
type IPBlocks interface {
	Objects
	List(ctx context.Context, options metav1.ListOptions) (*v1beta1.IPBlockList, error)
	Definition(ctx context.Context) (metav1.ObjectMeta, error)
}

// Store keeps ledgers in the cluster. It is safe for concurrent use, by several processes too.
type Store struct {
	objects IPBlocks
	now     func() time.Time
	// network is the name of the one public network whose blocks it knows; empty for all.
	network string
}

// NewStore returns a Store; a nil clock is time.Now. It makes no calls.
func NewStore(objects IPBlocks, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{objects: kept{objects}, now: now}
}

// NewReader returns a Store for programs that only show what is stored: what is being deleted stays as it is.
func NewReader(objects IPBlocks) *Store { return &Store{objects: objects, now: time.Now} }

// In is the Store of the blocks of one public network.
func (s *Store) In(network string) *Store {
	in := *s
	in.network = network
	return &in
}

// attachment is the network of the objects that the Store creates.
func (s *Store) attachment() string { return cmp.Or(s.network, v1beta1.DefaultNetwork) }

// Objects are the objects that the Store keeps ledgers in.
func (s *Store) Objects() IPBlocks { return s.objects }

// Listing is what is stored, ordered by block ID.
type Listing struct {
	// Ledgers are those that can be read.
	Ledgers []ipblock.Ledger
	// Unreadable are the others: an address that one of them gives must not be given again.
	Unreadable []ipblock.Unreadable
	// Unrecorded are the blocks whose object says nothing of addresses: its creation was interrupted, or it was
	// restored without its status.
	Unrecorded []ipblock.Ledger
	// Records are what purchases, and the blocks that were bought, are recorded in.
	Records ipblock.Records
	// BroughtBlocks are those that people say Services may name, and Names the names of all IPBlocks.
	BroughtBlocks ipblock.BroughtBlocks
	Names         []string
	// BroughtForNodes are the objects of blocks that people say nodes get addresses of, the oldest first.
	BroughtForNodes ipblock.Records
	// Shared are the objects of all blocks whose addresses several have, whoever created them.
	Shared ipblock.Records
	// All are the objects of all blocks, of whichever public network.
	All ipblock.Records
	// Elsewhere are the objects of the blocks of other public networks. Nothing else of those is listed but the names.
	Elsewhere ipblock.Records
}

// List reads all ledgers as they are now. Of IPBlocks that people created only those of brought blocks matter.
func (s *Store) List(ctx context.Context) (Listing, error) {
	list, err := s.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return Listing{}, client.Explain("list the IPBlocks", err)
	}
	var listing Listing
	for i := range list.Items {
		listing.Names = append(listing.Names, list.Items[i].Name)
		listing.All = append(listing.All, recordOf(&list.Items[i]))
		if s.network != "" && networkOf(&list.Items[i]) != s.network {
			listing.Elsewhere = append(listing.Elsewhere, recordOf(&list.Items[i]))
			continue
		}
		if record, recorded := RecordOf(&list.Items[i]); recorded {
			listing.Records = append(listing.Records, record)
		}
		if list.Items[i].Spec.Purpose != v1beta1.PurposeService && list.Items[i].Spec.BlockID != "" {
			listing.Shared = append(listing.Shared, recordOf(&list.Items[i]))
		}
		if brought, declared := broughtIn(&list.Items[i]); declared {
			listing.BroughtBlocks = append(listing.BroughtBlocks, brought)
		}
		if brings(&list.Items[i], v1beta1.PurposeNodes) && list.Items[i].DeletionTimestamp == nil {
			listing.BroughtForNodes = append(listing.BroughtForNodes, recordOf(&list.Items[i]))
		}
		if hasLedger(&list.Items[i]) {
			listing.add(&list.Items[i])
		}
	}
	listing.Ledgers = slices.DeleteFunc(listing.Ledgers, func(l ipblock.Ledger) bool {
		return slices.ContainsFunc(listing.Unreadable,
			func(u ipblock.Unreadable) bool { return u.BlockID == l.BlockID })
	})
	slices.SortFunc(listing.BroughtForNodes, func(a, b ipblock.Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(listing.Ledgers, func(a, b ipblock.Ledger) int { return cmp.Compare(a.BlockID, b.BlockID) })
	slices.SortFunc(listing.Unreadable, func(a, b ipblock.Unreadable) int { return cmp.Compare(a.BlockID, b.BlockID) })
	return listing, nil
}

// add adds the ledger of an object. Two objects of one block are unreadable, unless one says nothing: so does that of a
// person until a Service names the block.
func (l *Listing) add(object *v1beta1.IPBlock) {
	read, err := decode(object)
	switch {
	case errors.Is(err, ErrNotFound) && !isOwn(object):
		return
	case errors.Is(err, ErrNotFound):
		l.Unrecorded = append(l.Unrecorded, read)
		return
	case err != nil:
		l.Unreadable = append(l.Unreadable, ipblock.Unreadable{BlockID: read.BlockID, Problem: err.Error()})
		return
	}
	i := slices.IndexFunc(l.Ledgers, func(other ipblock.Ledger) bool { return other.BlockID == read.BlockID })
	if i < 0 {
		l.Ledgers = append(l.Ledgers, read)
		return
	}
	problem := fmt.Sprintf("IPBlocks %s and %s are both of IP block %s; give one of them the annotation %s=true and "+
		"delete it", l.Ledgers[i].Object, read.Object, read.BlockID, contract.AllowDeletion)
	l.Unreadable = append(l.Unreadable, ipblock.Unreadable{BlockID: read.BlockID, Problem: problem})
}

// Get reads the ledger of one block as it is now; ErrNotFound when none is stored, ErrUnreadable when it cannot be
// read.
func (s *Store) Get(ctx context.Context, blockID string) (ipblock.Ledger, error) {
	listing, err := s.List(ctx)
	if err != nil {
		return ipblock.Ledger{}, err
	}
	for _, l := range listing.Ledgers {
		if l.BlockID == blockID {
			return l, nil
		}
	}
	for _, u := range listing.Unreadable {
		if u.BlockID == blockID {
			return ipblock.Ledger{}, fmt.Errorf("%w: %s", ErrUnreadable, u.Problem)
		}
	}
	return ipblock.Ledger{}, fmt.Errorf("IP block %s: %w", blockID, ErrNotFound)
}

// Save stores the ledger and returns it with its new version. ErrConflict when what is stored is not the
// version that l was made from; a ledger without a version is created.
func (s *Store) Save(ctx context.Context, l ipblock.Ledger) (ipblock.Ledger, error) {
	if err := l.Check(); err != nil {
		return ipblock.Ledger{}, fmt.Errorf("ledger of IP block %s is not stored: %w", l.BlockID, err)
	}
	base, err := s.base(ctx, l)
	if err != nil {
		return ipblock.Ledger{}, err
	}
	stored, err := s.objects.UpdateStatus(ctx, withLedger(base, l, s.now()), metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && !client.Undefined(err):
		return ipblock.Ledger{}, fmt.Errorf("save IPBlock %s: %w (%w)", base.Name, ErrConflict, err)
	case err != nil:
		return ipblock.Ledger{}, client.Explain("save IPBlock "+base.Name, err)
	}
	kept, err := decode(stored)
	if err != nil || !sameLedger(kept, l) {
		return ipblock.Ledger{}, client.NotKept("status", base.Name)
	}
	return kept, nil
}

// base is the stored object that the ledger was made from. One without allocations, as a purchase, an interrupted
// creation or a restore without status leaves it, is the base of a ledger that is to be created.
func (s *Store) base(ctx context.Context, l ipblock.Ledger) (*v1beta1.IPBlock, error) {
	if l.Version == "" {
		return s.newBase(ctx, l)
	}
	base, err := s.objects.Get(ctx, l.Object, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !client.Undefined(err):
		return nil, fmt.Errorf("save IPBlock %s: %w", l.Object, ErrConflict)
	case err != nil:
		return nil, client.Explain("read IPBlock "+l.Object, err)
	case l.Version != base.ResourceVersion:
		return nil, fmt.Errorf("save IPBlock %s: %w", l.Object, ErrConflict)
	}
	return base, nil
}

// newBase is the object of the block that says nothing of addresses yet, else a new one.
func (s *Store) newBase(ctx context.Context, l ipblock.Ledger) (*v1beta1.IPBlock, error) {
	list, err := s.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, client.Explain("list the IPBlocks", err)
	}
	for i := range list.Items {
		switch object := &list.Items[i]; {
		case object.Spec.BlockID != l.BlockID || !hasLedger(object):
		case object.Status.Allocations != nil:
			return nil, fmt.Errorf("save IPBlock %s: %w", object.Name, ErrConflict)
		default:
			return object, nil
		}
	}
	created, err := s.objects.Create(ctx, newObject(l, s.attachment()), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create IPBlock %s: %w (%w)", v1beta1.NamePrefix+l.BlockID, ErrConflict, err)
	}
	return created, client.Explain("create IPBlock "+v1beta1.NamePrefix+l.BlockID, err)
}

// Delete removes the ledger of a block that is gone, or not used any more; ErrConflict when what is stored is not the
// version that l was made from. That nothing is stored is no error. An object that a person created stays, without its
// status.
func (s *Store) Delete(ctx context.Context, l ipblock.Ledger) error {
	if l.Version == "" {
		return nil
	}
	if !ownName(l.Object, s.attachment()) && !l.Deleted {
		return s.clear(ctx, l)
	}
	err := s.objects.Delete(ctx, l.Object, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &l.Version},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("delete IPBlock %s: %w (%w)", l.Object, ErrConflict, err)
	default:
		return client.Explain("delete IPBlock "+l.Object, err)
	}
}

// clear removes a ledger from an object. What is shown of the block stays.
func (s *Store) clear(ctx context.Context, l ipblock.Ledger) error {
	object, err := s.objects.Get(ctx, l.Object, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !client.Undefined(err) {
		return nil
	}
	if err != nil {
		return failed("read", l.Object, err)
	}
	object.ResourceVersion = l.Version
	shown := object.Status
	meta.RemoveStatusCondition(&shown.Conditions, v1beta1.ConditionAllocatable)
	object.Status = v1beta1.IPBlockStatus{CIDR: shown.CIDR, Gateway: shown.Gateway, Location: shown.Location,
		Conditions: shown.Conditions}
	_, err = s.objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return failed("save", l.Object, err)
}
