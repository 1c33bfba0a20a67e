// Package allocation stores who holds which address of an IP block: one IPBlock for each block, changed by
// compare-and-swap.
package allocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

var (
	// ErrConflict says that the stored ledger is not the one that was read: read it again and decide again.
	ErrConflict = errors.New("the ledger was changed meanwhile")
	// ErrNotFound says that nothing is stored of the block.
	ErrNotFound = errors.New("no ledger is stored")
	// ErrUnreadable says that what is stored of the block is no ledger. A person must repair it.
	ErrUnreadable = errors.New("the ledger cannot be read")
)

// IPBlocks are the objects on the API server.
type IPBlocks interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*v1beta1.IPBlock, error)
	List(ctx context.Context, options metav1.ListOptions) (*v1beta1.IPBlockList, error)
	Create(ctx context.Context, object *v1beta1.IPBlock, options metav1.CreateOptions) (*v1beta1.IPBlock, error)
	UpdateStatus(ctx context.Context, object *v1beta1.IPBlock, options metav1.UpdateOptions) (*v1beta1.IPBlock, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// Store keeps ledgers in the cluster. It is safe for concurrent use, by several processes too.
type Store struct {
	objects IPBlocks
	now     func() time.Time
}

// NewStore returns a Store; a nil clock is time.Now. It makes no calls.
func NewStore(objects IPBlocks, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{objects: objects, now: now}
}

// Listing is what is stored, ordered by block ID.
type Listing struct {
	// Ledgers are those that can be read.
	Ledgers []plan.Ledger
	// Unreadable are the others: an address that one of them gives must not be given again.
	Unreadable []plan.Unreadable
	// Unrecorded are the blocks whose object says nothing of addresses: its creation was interrupted, or it was
	// restored without its status.
	Unrecorded []plan.Ledger
}

// List reads all ledgers as they are now. An IPBlock with another name than that of a ledger is ignored.
func (s *Store) List(ctx context.Context) (Listing, error) {
	list, err := s.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return Listing{}, explain("list the IPBlocks", err)
	}
	var listing Listing
	for i := range list.Items {
		id, named := strings.CutPrefix(list.Items[i].Name, v1beta1.NamePrefix)
		if !named {
			continue
		}
		read, err := decode(&list.Items[i])
		switch {
		case errors.Is(err, ErrNotFound):
			listing.Unrecorded = append(listing.Unrecorded, read)
		case err != nil:
			listing.Unreadable = append(listing.Unreadable, plan.Unreadable{BlockID: id, Problem: err.Error()})
		default:
			listing.Ledgers = append(listing.Ledgers, read)
		}
	}
	slices.SortFunc(listing.Ledgers, func(a, b plan.Ledger) int { return cmp.Compare(a.BlockID, b.BlockID) })
	slices.SortFunc(listing.Unreadable, func(a, b plan.Unreadable) int { return cmp.Compare(a.BlockID, b.BlockID) })
	return listing, nil
}

// Get reads the ledger of one block as it is now; ErrNotFound when none is stored, ErrUnreadable when it cannot be
// read.
func (s *Store) Get(ctx context.Context, blockID string) (plan.Ledger, error) {
	object, err := s.objects.Get(ctx, v1beta1.NamePrefix+blockID, metav1.GetOptions{})
	switch {
	case undefined(err):
		return plan.Ledger{}, explain("read IPBlock "+v1beta1.NamePrefix+blockID, err)
	case apierrors.IsNotFound(err):
		return plan.Ledger{}, fmt.Errorf("IP block %s: %w", blockID, ErrNotFound)
	case err != nil:
		return plan.Ledger{}, explain("read IPBlock "+v1beta1.NamePrefix+blockID, err)
	}
	l, err := decode(object)
	if err != nil {
		return plan.Ledger{}, err
	}
	return l, nil
}

// Save stores the ledger and returns it with its new version. ErrConflict when what is stored is not the
// version that l was made from; a ledger without a version is created.
func (s *Store) Save(ctx context.Context, l plan.Ledger) (plan.Ledger, error) {
	if err := l.Check(); err != nil {
		return plan.Ledger{}, fmt.Errorf("ledger of IP block %s is not stored: %w", l.BlockID, err)
	}
	base, err := s.base(ctx, l)
	if err != nil {
		return plan.Ledger{}, err
	}
	stored, err := s.objects.UpdateStatus(ctx, withLedger(base, l, s.now()), metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && !undefined(err):
		return plan.Ledger{}, fmt.Errorf("save IPBlock %s: %w (%w)", base.Name, ErrConflict, err)
	case err != nil:
		return plan.Ledger{}, explain("save IPBlock "+base.Name, err)
	}
	kept, err := decode(stored)
	if err != nil || !sameLedger(kept, l) {
		return plan.Ledger{}, fmt.Errorf("the API server did not keep the status of IPBlock %s as it was written; "+
			"exclude it from the admission webhook that changes it, or %s", base.Name, install)
	}
	return kept, nil
}

// base is the stored object that the ledger was made from. One without allocations, as an interrupted creation or a
// restore without status leaves it, is the base of a ledger that is to be created.
func (s *Store) base(ctx context.Context, l plan.Ledger) (*v1beta1.IPBlock, error) {
	name := v1beta1.NamePrefix + l.BlockID
	if l.Version == "" {
		created, err := s.objects.Create(ctx, newObject(l), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return created, explain("create IPBlock "+name, err)
		}
	}
	base, err := s.objects.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !undefined(err):
		return nil, fmt.Errorf("save IPBlock %s: %w", name, ErrConflict)
	case err != nil:
		return nil, explain("read IPBlock "+name, err)
	case l.Version != "" && l.Version != base.ResourceVersion, l.Version == "" && base.Status.Allocations != nil:
		return nil, fmt.Errorf("save IPBlock %s: %w", name, ErrConflict)
	}
	return base, nil
}

// Delete removes the ledger of a block that is gone; ErrConflict when what is stored is not the version
// that l was made from. That nothing is stored is no error.
func (s *Store) Delete(ctx context.Context, l plan.Ledger) error {
	if l.Version == "" {
		return nil
	}
	name := v1beta1.NamePrefix + l.BlockID
	err := s.objects.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &l.Version},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("delete IPBlock %s: %w (%w)", name, ErrConflict, err)
	default:
		return explain("delete IPBlock "+name, err)
	}
}

// install is how the definition of the objects gets on the API server.
const install = "install the definition of IPBlock of this version: kubectl apply -k deploy/crds"

// undefined reports whether the API server does not know the kind. That an object is missing is something else.
func undefined(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func explain(action string, err error) error {
	switch {
	case err == nil:
		return nil
	case undefined(err):
		return fmt.Errorf("%s: %w; %s", action, err, install)
	default:
		return fmt.Errorf("%s: %w", action, err)
	}
}
