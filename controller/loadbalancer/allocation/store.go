// Package allocation stores who holds which address of an IP block: one ConfigMap for each block, changed by
// compare-and-swap.
package allocation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// NamePrefix and the ID of the block make the name of its ConfigMap, in the namespace kube-system.
	NamePrefix = "phoenixnap-ip-block-"
	// Label is "true" on these ConfigMaps.
	Label = contract.Prefix + "ip-block-ledger"
)

var (
	// ErrConflict says that the stored ledger is not the one that was read: read it again and decide again.
	ErrConflict = errors.New("the ledger was changed meanwhile")
	// ErrNotFound says that nothing is stored of the block.
	ErrNotFound = errors.New("no ledger is stored")
	// ErrUnreadable says that what is stored of the block is no ledger. A person must repair it.
	ErrUnreadable = errors.New("the ledger cannot be read")
)

// Store keeps ledgers in the cluster. It is safe for concurrent use, by several processes too.
type Store struct {
	configMaps typedcorev1.ConfigMapInterface
}

// NewStore returns a Store. It makes no calls.
func NewStore(kube kubernetes.Interface) *Store {
	return &Store{configMaps: kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)}
}

// Listing is what is stored, ordered by block ID.
type Listing struct {
	// Ledgers are those that can be read.
	Ledgers []plan.Ledger
	// Unreadable are the others: an address that one of them gives must not be given again.
	Unreadable []plan.Unreadable
}

// lists reports whether something is stored of the block.
func (l Listing) lists(blockID string) bool {
	return slices.ContainsFunc(l.Ledgers, func(l plan.Ledger) bool { return l.BlockID == blockID }) ||
		slices.ContainsFunc(l.Unreadable, func(u plan.Unreadable) bool { return u.BlockID == blockID })
}

// Without returns those of the blocks of which nothing is listed.
func (l Listing) Without(blockIDs []string) []string {
	return slices.DeleteFunc(slices.Clone(blockIDs), l.lists)
}

// List reads all ledgers as they are now. Those that lost their label are not among them, see Relabel. A ConfigMap with
// the label and another name than that of a ledger is ignored.
func (s *Store) List(ctx context.Context) (Listing, error) {
	list, err := s.configMaps.List(ctx, metav1.ListOptions{LabelSelector: Label + "=true"})
	if err != nil {
		return Listing{}, fmt.Errorf("list the ledgers of IP blocks: %w", err)
	}
	var listing Listing
	for i := range list.Items {
		id, named := strings.CutPrefix(list.Items[i].Name, NamePrefix)
		if !named {
			continue
		}
		read, err := decode(&list.Items[i])
		if err != nil {
			listing.Unreadable = append(listing.Unreadable, plan.Unreadable{BlockID: id, Problem: err.Error()})
			continue
		}
		listing.Ledgers = append(listing.Ledgers, read)
	}
	slices.SortFunc(listing.Ledgers, func(a, b plan.Ledger) int { return cmp.Compare(a.BlockID, b.BlockID) })
	slices.SortFunc(listing.Unreadable, func(a, b plan.Unreadable) int { return cmp.Compare(a.BlockID, b.BlockID) })
	return listing, nil
}

// Relabel restores the label of those ledgers of the blocks that lost it, and returns the names of their ConfigMaps. A
// block of which nothing is stored is no error, nor is one whose ledger changes at this moment.
func (s *Store) Relabel(ctx context.Context, blockIDs ...string) (restored []string, err error) {
	for _, id := range blockIDs {
		object, err := s.configMaps.Get(ctx, NamePrefix+id, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return restored, fmt.Errorf("read the ledger of IP block %s: %w", id, err)
		}
		if object.Labels[Label] == contract.TagTrue {
			continue // it was made a moment ago
		}
		metav1.SetMetaDataLabel(&object.ObjectMeta, Label, contract.TagTrue)
		_, err = s.configMaps.Update(ctx, object, metav1.UpdateOptions{})
		switch {
		case err == nil:
			restored = append(restored, object.Name)
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		default:
			return restored, fmt.Errorf("restore label %s of ConfigMap %s/%s: %w", Label, object.Namespace, object.Name,
				err)
		}
	}
	return restored, nil
}

// Get reads the ledger of one block as it is now, whatever its labels; ErrNotFound when none is stored, ErrUnreadable
// when it cannot be read.
func (s *Store) Get(ctx context.Context, blockID string) (plan.Ledger, error) {
	object, err := s.configMaps.Get(ctx, NamePrefix+blockID, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return plan.Ledger{}, fmt.Errorf("IP block %s: %w", blockID, ErrNotFound)
	case err != nil:
		return plan.Ledger{}, fmt.Errorf("read the ledger of IP block %s: %w", blockID, err)
	}
	return decode(object)
}

// Save stores the ledger and returns it with its new version. ErrConflict when what is stored is not the
// version that l was made from; a ledger without a version is created.
func (s *Store) Save(ctx context.Context, l plan.Ledger) (plan.Ledger, error) {
	object, err := encode(l)
	if err != nil {
		return plan.Ledger{}, err
	}
	stored, err := s.write(ctx, object)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && l.Version != "":
		return plan.Ledger{}, fmt.Errorf("save the ledger of IP block %s: %w (%w)", l.BlockID, ErrConflict, err)
	case err != nil:
		return plan.Ledger{}, fmt.Errorf("save the ledger of IP block %s: %w", l.BlockID, err)
	case stored.Data[dataKey] != object.Data[dataKey]:
		return plan.Ledger{}, fmt.Errorf("the API server did not keep the ledger in ConfigMap %s/%s as it was "+
			"written; exclude it from the admission webhook that changes it", object.Namespace, object.Name)
	}
	l.Version = stored.ResourceVersion
	return l, nil
}

func (s *Store) write(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	if object.ResourceVersion == "" {
		return s.configMaps.Create(ctx, object, metav1.CreateOptions{})
	}
	return s.configMaps.Update(ctx, object, metav1.UpdateOptions{})
}

// Delete removes the ledger of a block that is gone; ErrConflict when what is stored is not the version
// that l was made from. That nothing is stored is no error.
func (s *Store) Delete(ctx context.Context, l plan.Ledger) error {
	if l.Version == "" {
		return nil
	}
	err := s.configMaps.Delete(ctx, NamePrefix+l.BlockID, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &l.Version},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("delete the ledger of IP block %s: %w (%w)", l.BlockID, ErrConflict, err)
	default:
		return fmt.Errorf("delete the ledger of IP block %s: %w", l.BlockID, err)
	}
}

// dataKey is where the ConfigMap holds the ledger.
const dataKey = "ledger.json"

// encode makes the ConfigMap of a ledger. A ledger that breaks its own rules is not stored.
func encode(l plan.Ledger) (*corev1.ConfigMap, error) {
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("ledger of IP block %s is not stored: %w", l.BlockID, err)
	}
	l.Held = maps.Collect(maps.All(l.Held)) // never nil, which would be stored as null
	quarantined := map[netip.Addr]plan.Released{}
	for address, r := range l.Quarantined {
		quarantined[address] = plan.Released{Holder: r.Holder, Since: r.Since.UTC()}
	}
	l.Quarantined = quarantined
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the ledger of IP block %s: %w", l.BlockID, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: NamePrefix + l.BlockID, Namespace: metav1.NamespaceSystem, ResourceVersion: l.Version,
			Labels: map[string]string{Label: contract.TagTrue},
		},
		Data: map[string]string{dataKey: string(raw)},
	}, nil
}

// decode reads the ledger in a ConfigMap.
func decode(object *corev1.ConfigMap) (plan.Ledger, error) {
	l, err := parse(object.Data[dataKey])
	if err == nil && object.Name != NamePrefix+l.BlockID {
		err = fmt.Errorf("it is the ledger of IP block %q", l.BlockID)
	}
	if err != nil {
		return plan.Ledger{},
			fmt.Errorf("ConfigMap %s/%s, key %s: %w: %w; restore it from a backup, or delete it: then it is made "+
				"again from the addresses of Services",
				object.Namespace, object.Name, dataKey, ErrUnreadable, err)
	}
	l.Version = object.ResourceVersion
	return l, nil
}

// parse reads a stored ledger. What it does not know is an error: a later version may mean something by it.
func parse(raw string) (plan.Ledger, error) {
	var l plan.Ledger
	decoder := json.NewDecoder(bytes.NewReader([]byte(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return plan.Ledger{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return plan.Ledger{}, errors.New("more follows behind the ledger")
	}
	l.Held = maps.Collect(maps.All(l.Held))
	l.Quarantined = maps.Collect(maps.All(l.Quarantined))
	return l, l.Check()
}
