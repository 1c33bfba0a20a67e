package main

import (
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The framework deletes the Node of a server that is gone, with the rights of the shipped ServiceAccount; a role
// that lacks this one is noticed only once a server goes.
//
//proves:known-bugs/missing-rights
func TestNodesMayBeDeletedByTheShippedServiceAccount(t *testing.T) {
	if err := plane.ApplyFiles(t.Context(), filepath.Join("..", "deploy", "base", "controller.yaml")); err != nil {
		t.Fatal(err)
	}
	account, err := plane.ServiceAccount(t.Context(), "kube-system", "phoenixnap-cloud-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	asController, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	client := admin(t)
	register(t, client, "node-gone")
	if err := asController.CoreV1().Nodes().Delete(t.Context(), "node-gone", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "node-gone",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node is still there: %v", err)
	}
}
