// Package kubefake is a Kubernetes API in memory that does what the tracker of client-go leaves out and controllers
// rely on: UIDs, resource versions with compare-and-swap, preconditions, and finalizers that hold an object. Clients
// reach it by requests (Connect), so that watches can be late; or by calls in which tests let errors happen
// (Store.Client).
package kubefake

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// Store holds the objects of a cluster. Any number of clients can work on it, as processes do on one API server.
type Store struct {
	ktesting.ObjectTracker
	// Admit stands for mutating admission webhooks: it may change an object that is about to be stored in the place of
	// another, or as a new one, for which stored is nil. It is set before the Store is used; nil admits everything.
	Admit func(changed, stored metav1.Object)

	mu      sync.Mutex
	version int64
	keys    map[key]bool // of the objects that were ever there
	// undefined are the resources whose definition was deleted, and terminating what else is known of those whose
	// definition is being deleted.
	undefined   map[schema.GroupVersionResource]bool
	terminating map[schema.GroupVersionResource]metav1.ObjectMeta
	history     *history
}

// key identifies an object.
type key struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{
		ObjectTracker: ktesting.NewObjectTracker(known(), serializer.NewCodecFactory(known()).UniversalDecoder()),
		keys:          map[key]bool{}, history: newHistory(),
		undefined:   map[schema.GroupVersionResource]bool{},
		terminating: map[schema.GroupVersionResource]metav1.ObjectMeta{},
	}
}

func (s *Store) next() string {
	s.version++
	return strconv.FormatInt(s.version, 10)
}

// Create implements ktesting.ObjectTracker.
func (s *Store) Create(
	gvr schema.GroupVersionResource, object runtime.Object, namespace string, _ ...metav1.CreateOptions,
) error {
	_, err := s.create(gvr, object, namespace)
	return err
}

// create stores a new object with what the API server gives it, and returns that.
func (s *Store) create(gvr schema.GroupVersionResource, object runtime.Object, namespace string) (runtime.Object,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object = object.DeepCopyObject()
	made, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	if made.GetName() == "" && made.GetGenerateName() != "" {
		made.SetName(made.GetGenerateName() + s.next())
	}
	made.SetResourceVersion(s.next())
	made.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	if made.GetUID() == "" {
		made.SetUID(types.UID(fmt.Sprintf("%s-%d", gvr.Resource, s.version)))
	}
	s.admit(made, nil)
	k := key{gvr, namespace, made.GetName()}
	s.keys[k] = true
	return object, s.insert(k, object)
}

// insert stores a new object.
func (s *Store) insert(k key, object runtime.Object) error {
	if err := s.ObjectTracker.Create(k.gvr, object, k.namespace); err != nil {
		return err
	}
	s.history.add(change{kind: watch.Added, key: k, version: s.version, object: object})
	return nil
}

// overwrite stores an object in the place of before.
func (s *Store) overwrite(k key, object, before runtime.Object) error {
	if err := s.ObjectTracker.Update(k.gvr, object, k.namespace); err != nil {
		return err
	}
	s.history.add(change{kind: watch.Modified, key: k, version: s.version, object: object, before: before})
	return nil
}

// remove removes an object, which gets the version of its removal.
func (s *Store) remove(k key, last runtime.Object) error {
	if err := s.ObjectTracker.Delete(k.gvr, k.namespace, k.name); err != nil {
		return err
	}
	gone := last.DeepCopyObject()
	if removed, err := meta.Accessor(gone); err == nil {
		removed.SetResourceVersion(s.next())
	}
	s.history.add(change{kind: watch.Deleted, key: k, version: s.version, object: gone, before: last})
	return nil
}

func (s *Store) admit(changed, stored metav1.Object) {
	if s.Admit != nil {
		s.Admit(changed, stored)
	}
}

// Snapshot is what a Store held at a time, definitions included.
type Snapshot struct {
	objects     map[key]runtime.Object
	undefined   map[schema.GroupVersionResource]bool
	terminating map[schema.GroupVersionResource]metav1.ObjectMeta
}

// Snapshot copies what the Store holds.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Snapshot{objects: map[key]runtime.Object{}, undefined: maps.Clone(s.undefined),
		terminating: maps.Clone(s.terminating)}
	for k := range s.keys {
		if object, err := s.Get(k.gvr, k.namespace, k.name); err == nil {
			all.objects[k] = object.DeepCopyObject()
		}
	}
	return all
}

// Restore brings a snapshot back, as a restore of etcd does: resource versions go on. No client may watch meanwhile.
func (s *Store) Restore(snapshot Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.keys {
		if err := s.restore(k, snapshot.objects[k]); err != nil {
			return fmt.Errorf("restore %s %s/%s: %w", k.gvr.Resource, k.namespace, k.name, err)
		}
	}
	s.undefined = maps.Clone(snapshot.undefined)
	s.terminating = maps.Clone(snapshot.terminating)
	return nil
}

// restore brings one object back; nil removes it.
func (s *Store) restore(k key, wanted runtime.Object) error {
	before, err := s.Get(k.gvr, k.namespace, k.name)
	exists := err == nil
	if wanted == nil {
		if !exists {
			return nil
		}
		return s.remove(k, before)
	}
	object := wanted.DeepCopyObject()
	restored, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	restored.SetResourceVersion(s.next())
	if exists {
		return s.overwrite(k, object, before)
	}
	return s.insert(k, object)
}

// Update implements ktesting.ObjectTracker.
func (s *Store) Update(
	gvr schema.GroupVersionResource, object runtime.Object, namespace string, _ ...metav1.UpdateOptions,
) error {
	_, err := s.replace(gvr, object, namespace)
	return err
}

// Patch implements ktesting.ObjectTracker: the object is patched already, so a resource version or UID that the patch
// named stands in it. It is what the client gets to read, so it becomes what was stored.
func (s *Store) Patch(
	gvr schema.GroupVersionResource, object runtime.Object, namespace string, _ ...metav1.PatchOptions,
) error {
	stored, err := s.replace(gvr, object, namespace)
	if err != nil {
		return err
	}
	answer, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	answer.SetResourceVersion(stored.GetResourceVersion())
	answer.SetFinalizers(stored.GetFinalizers())
	answer.SetAnnotations(stored.GetAnnotations())
	return nil
}

func (s *Store) replace(gvr schema.GroupVersionResource, object runtime.Object, namespace string) (metav1.Object,
	error) {
	changed, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	stored, err := s.change(key{gvr, namespace, changed.GetName()}, func(runtime.Object) (runtime.Object, error) {
		return object.DeepCopyObject(), nil
	})
	if err != nil {
		return nil, err
	}
	return meta.Accessor(stored)
}

// change stores what becomes of an object, and returns it. No one else changes the object meanwhile.
func (s *Store) change(k key, become func(stored runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.Get(k.gvr, k.namespace, k.name)
	if err != nil {
		return nil, err
	}
	object, err := become(before.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	changed, stored, err := metadataOf(object, before)
	if err != nil {
		return nil, err
	}
	switch {
	case changed.GetResourceVersion() != "" && changed.GetResourceVersion() != stored.GetResourceVersion(),
		changed.GetUID() != "" && changed.GetUID() != stored.GetUID():
		return nil, conflict(k.gvr, changed, stored)
	case stored.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) > len(stored.GetFinalizers()):
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: k.gvr.Group, Kind: k.gvr.Resource}, k.name, nil)
	}
	s.admit(changed, stored)
	changed.SetUID(stored.GetUID())
	changed.SetCreationTimestamp(stored.GetCreationTimestamp())
	changed.SetDeletionTimestamp(stored.GetDeletionTimestamp())
	changed.SetResourceVersion(stored.GetResourceVersion())
	if equality.Semantic.DeepEqual(object, before) {
		return object, nil // the API server writes nothing then
	}
	if changed.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) == 0 {
		return object, s.remove(k, object)
	}
	changed.SetResourceVersion(s.next())
	return object, s.overwrite(k, object, before)
}

func metadataOf(object, before runtime.Object) (changed, stored metav1.Object, err error) {
	if changed, err = meta.Accessor(object); err != nil {
		return nil, nil, err
	}
	stored, err = meta.Accessor(before)
	return changed, stored, err
}

func conflict(gvr schema.GroupVersionResource, changed, stored metav1.Object) error {
	reason := fmt.Errorf("it is at %s now, not at %s", stored.GetResourceVersion(), changed.GetResourceVersion())
	return apierrors.NewConflict(gvr.GroupResource(), changed.GetName(), reason)
}

// Delete implements ktesting.ObjectTracker.
func (s *Store) Delete(gvr schema.GroupVersionResource, namespace, name string, options ...metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	object, err := s.Get(gvr, namespace, name)
	if err != nil {
		return err
	}
	stored, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	for _, option := range options {
		if !met(option.Preconditions, stored) {
			return apierrors.NewConflict(gvr.GroupResource(), name, fmt.Errorf("a precondition is not met"))
		}
	}
	k := key{gvr, namespace, name}
	if len(stored.GetFinalizers()) == 0 {
		return s.remove(k, object)
	}
	if stored.GetDeletionTimestamp() != nil {
		return nil
	}
	before := object.DeepCopyObject()
	now := metav1.Time{Time: time.Now().Truncate(time.Second)}
	stored.SetDeletionTimestamp(&now)
	stored.SetResourceVersion(s.next())
	return s.overwrite(k, object, before)
}

func met(wanted *metav1.Preconditions, stored metav1.Object) bool {
	return wanted == nil ||
		(wanted.UID == nil || *wanted.UID == stored.GetUID()) &&
			(wanted.ResourceVersion == nil || *wanted.ResourceVersion == stored.GetResourceVersion())
}

// Client returns a client that reads, changes and watches the objects of the Store without requests, so a test can let
// calls fail by reactors. What depends on versions, the subresource status or a watch that is late needs Connect.
func (s *Store) Client() *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", ktesting.ObjectReaction(s))
	client.AddWatchReactor("*", s.ReactToWatch)
	return client
}

// ReactToWatch is a ktesting.WatchReactionFunc that serves the watch from the Store.
func (s *Store) ReactToWatch(action ktesting.Action) (handled bool, found watch.Interface, err error) {
	watched, ok := action.(ktesting.WatchActionImpl)
	if !ok {
		return false, nil, nil
	}
	found, err = s.Watch(action.GetResource(), action.GetNamespace(), watched.ListOptions)
	return true, found, err
}
