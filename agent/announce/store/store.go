// Package store keeps the announcers' view, which node announces what, in one API object, by compare-and-swap.
package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// ErrConflict means that the view has changed meanwhile: read it and decide again.
var ErrConflict = errors.New("the view was changed by another node")

// Document is a view as it is stored.
type Document struct {
	// Version is that of the object; empty when there is none.
	Version string
	// View is the encoded view; empty when there is none for the network.
	View string
}

// ConfigMaps are those of the namespace kube-system; the client of client-go is one.
type ConfigMaps interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error)
	Create(ctx context.Context, object *corev1.ConfigMap, options metav1.CreateOptions) (*corev1.ConfigMap, error)
	Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Store is the view of one public network. Those of other networks stay as they are: while a cluster moves to another
// one, some nodes still announce on the former.
type Store struct {
	objects ConfigMaps
	network string

	mu sync.Mutex
	// version and data are those of the object that was last seen.
	version string
	data    map[string]string
}

// New returns the store of the network with that ID.
func New(objects ConfigMaps, network string) *Store {
	return &Store{objects: objects, network: network}
}

// ClientConfig configures the client that is used only for the view: HTTP/1.1, so that after an unanswered request
// the next one takes another connection, maybe to another API server; and no waiting behind other requests.
func ClientConfig(base *rest.Config) *rest.Config {
	config := rest.CopyConfig(base)
	config.NextProtos = []string{"http/1.1"}
	config.QPS = -1
	config.Burst = 0
	return config
}

// Read reads the current view: a read without a version goes to etcd's majority.
func (s *Store) Read(ctx context.Context) (Document, error) {
	object, err := s.objects.Get(ctx, contract.AnnouncerView, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Document{}, nil
	case err != nil:
		return Document{}, fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerView, err)
	default:
		return s.document(object), nil
	}
}

func (s *Store) document(object *corev1.ConfigMap) Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = object.ResourceVersion
	s.data = object.Data
	return Document{Version: object.ResourceVersion, View: object.Data[s.network]}
}

// Write replaces the view of the version d.Version and returns the stored one. The error is ErrConflict when the view
// has changed meanwhile. After any other error it is unknown whether the view was written.
func (s *Store) Write(ctx context.Context, d Document) (Document, error) {
	data, known := s.dataOf(d.Version)
	if !known {
		return Document{}, ErrConflict
	}
	data[s.network] = d.View
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: contract.AnnouncerView, Namespace: metav1.NamespaceSystem, ResourceVersion: d.Version,
		},
		Data: data,
	}
	var err error
	if d.Version == "" {
		object, err = s.objects.Create(ctx, object, metav1.CreateOptions{})
	} else {
		object, err = s.objects.Update(ctx, object, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return Document{}, ErrConflict
	case err != nil:
		return Document{}, fmt.Errorf("write ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerView, err)
	default:
		return s.document(object), nil
	}
}

// dataOf returns the content of a version of the object, empty for none; known is false when another one was seen
// since.
func (s *Store) dataOf(version string) (data map[string]string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data = map[string]string{}
	if version == "" {
		return data, true
	}
	maps.Copy(data, s.data)
	return data, version == s.version
}

// Watch calls changed with the states of the view until ctx ends. One may be missed or late: to be certain, read.
func (s *Store) Watch(ctx context.Context, changed func(Document)) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		err := follow(ctx, contract.AnnouncerView, s.objects.Watch, func(object *corev1.ConfigMap) {
			changed(s.document(object))
		})
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Failed to watch the announcer view, retrying", "reason", err.Error())
		}
		return watchAgain
	})
}
