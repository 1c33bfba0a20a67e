// Package blockreport publishes in Kubernetes what the controller knows of IP blocks, for people and programs that hold
// no credentials of phoenixNAP.
package blockreport

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Refresh is how often a report in which nothing changed is written again, so that readers know that it is current.
const Refresh = 5 * time.Minute

// Store keeps the report in a ConfigMap. It belongs to one goroutine.
type Store struct {
	configMaps typedcorev1.ConfigMapInterface
	published  *contract.BlockReport
}

// NewStore returns a Store. It makes no calls.
func NewStore(kube kubernetes.Interface) *Store {
	return &Store{configMaps: kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)}
}

// Publish writes the report when it says something new, or when the last one is older than Refresh.
func (s *Store) Publish(ctx context.Context, r contract.BlockReport) error {
	if s.published != nil && r.Looked.Before(s.published.Looked.Add(Refresh)) && sameBut(*s.published, r) {
		return nil
	}
	if err := s.write(ctx, r); err != nil {
		return fmt.Errorf("publish ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	s.published = &r
	return nil
}

// sameBut reports whether two reports are equal but for the time.
func sameBut(a, b contract.BlockReport) bool {
	a.Looked = b.Looked
	return reflect.DeepEqual(a, b)
}

func (s *Store) write(ctx context.Context, r contract.BlockReport) error {
	text, err := r.Encode()
	if err != nil {
		return err
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.BlockReportName, Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{contract.BlockReportKey: text},
	}
	// Only the controller writes it and nothing is decided by it, so the last report stands whatever was there.
	_, err = s.configMaps.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = s.configMaps.Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}
