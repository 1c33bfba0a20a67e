package kubefake

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Undefine deletes the definition of a resource, and with it the objects. It is there until the last object is gone;
// from then on requests for the resource are not served until Define.
func (s *Store) Undefine(gvr schema.GroupVersionResource) error {
	s.mu.Lock()
	now := metav1.Time{Time: time.Now().Truncate(time.Second)}
	if about := s.terminating[gvr]; about.DeletionTimestamp == nil && !s.undefined[gvr] {
		s.terminating[gvr] = metav1.ObjectMeta{DeletionTimestamp: &now}
	}
	var all []key
	for k := range s.keys {
		if k.gvr == gvr {
			all = append(all, k)
		}
	}
	s.mu.Unlock()
	for _, k := range all {
		if err := s.Delete(gvr, k.namespace, k.name); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// AllowUndefine gives a definition that is being deleted the annotation that allows it.
func (s *Store) AllowUndefine(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if about, terminating := s.terminating[gvr]; terminating {
		about.Annotations = map[string]string{contract.AllowDeletion: "true"}
		s.terminating[gvr] = about
	}
}

// Definition is what is known of the definition of a resource; false when there is none.
func (s *Store) Definition(gvr schema.GroupVersionResource) (metav1.ObjectMeta, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(gvr)
	return s.terminating[gvr], !s.undefined[gvr]
}

// finish ends the deletion of a definition without objects.
func (s *Store) finish(gvr schema.GroupVersionResource) {
	if _, terminating := s.terminating[gvr]; !terminating {
		return
	}
	for k := range s.keys {
		if _, err := s.Get(k.gvr, k.namespace, k.name); k.gvr == gvr && err == nil {
			return
		}
	}
	delete(s.terminating, gvr)
	s.undefined[gvr] = true
}

// Define applies the definition again. One that is still being deleted stays so, as on an API server: then it is false.
func (s *Store) Define(gvr schema.GroupVersionResource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(gvr)
	delete(s.undefined, gvr)
	_, terminating := s.terminating[gvr]
	return !terminating
}

// unserved says why a request for a resource is refused: 404 without its definition, and a creation while that is being
// deleted (customresource_handler.go of k8s.io/apiextensions-apiserver).
func (s *Store) unserved(raw *http.Request, gvr schema.GroupVersionResource) error {
	definition, defined := s.Definition(gvr)
	switch {
	case !defined:
		return notFound(raw)
	case definition.DeletionTimestamp != nil && raw.Method == http.MethodPost:
		return apierrors.NewForbidden(gvr.GroupResource(), "",
			errors.New("create not allowed while custom resource definition is terminating"))
	default:
		return nil
	}
}
