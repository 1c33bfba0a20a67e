package deploy

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy/reapply"
)

const (
	servedService = "served"
	servedAddress = "203.0.113.2"
	// recorded is the status of the block of servedService.
	recorded = `{"status":{"cidr":"203.0.113.0/29","used":"1/5","allocations":[{"address":"` + servedAddress +
		`","since":"2026-11-27T00:00:00Z","services":[{"namespace":"default","name":"` + servedService + `"}]}]}}`
	published = `{"status":{"loadBalancer":{"ingress":[{"ip":"` + servedAddress + `"}]}}}`
)

// definitions are those of our kinds, and guards the policies without which what is kept could be deleted by mistake.
var (
	definitions = []string{"ipblocks.networking.phoenixnap.com", "publicnetworks.networking.phoenixnap.com"}
	guards      = []string{"phoenixnap-definitions", "phoenixnap-ipblocks", "phoenixnap-publicnetworks"}
)

// TestHelmUninstallKeepsWhatIsServed: helm uninstall while a Service has an address changes neither the records nor the
// Service, and the next installation takes over what was kept.
func TestHelmUninstallKeepsWhatIsServed(t *testing.T) {
	cluster := reapply.NewCluster(t, cp.Config())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, cp.Config(), ""))
	helm := func(args ...string) {
		t.Helper()
		out, err := runHelm(t.Context(), slices.Concat(args, []string{"--namespace", "kube-system", "--kubeconfig",
			kubeconfig})...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	helm("install", "phoenixnap", chart(t), "--take-ownership")
	t.Cleanup(func() { forgetInstallation(t) })
	serve(t)
	served := func() map[string]*unstructured.Unstructured {
		return cluster.Live(t, "ipblocks,services", "--all-namespaces")
	}
	kept := func() map[string]*unstructured.Unstructured {
		var names []string
		for _, definition := range definitions {
			names = append(names, "crd/"+definition)
		}
		for _, guard := range guards {
			names = append(names, "validatingadmissionpolicy/"+guard, "validatingadmissionpolicybinding/"+guard)
		}
		return cluster.Live(t, names...)
	}
	before := served()
	keptBefore := kept()

	helm("uninstall", "phoenixnap", "--wait")
	const deployment = "deployment/phoenixnap-cloud-controller-manager"
	if out, err := cluster.Run(t, "-n", "kube-system", "get", deployment); err == nil {
		t.Errorf("the controller is left after helm uninstall:\n%s", out)
	}
	same(t, "helm uninstall changes what is served", before, served())
	same(t, "helm uninstall changes the definition or its guards", keptBefore, kept())
	for _, object := range []string{"crd/" + definitions[0], "crd/" + definitions[1], "ipblock/" + servedService} {
		if out, err := cluster.Run(t, "delete", "--dry-run=server", object); err == nil ||
			!strings.Contains(out, contract.AllowDeletion) {
			t.Errorf("%s may be deleted after helm uninstall: %v\n%s", object, err, out)
		}
	}

	helm("install", "phoenixnap", chart(t))
	cluster.Must(t, "-n", "kube-system", "get", deployment)
	same(t, "helm install changes what is served", before, served())
	reapply.SameContents(t, "the definition and its guards after the next helm install", keptBefore, kept())
	helm("uninstall", "phoenixnap", "--wait")
}

// same expects that objects were not even written: their versions are the same.
func same(t *testing.T, what string, before, after map[string]*unstructured.Unstructured) {
	t.Helper()
	if diff := gocmp.Diff(before, after); diff != "" {
		t.Errorf("%s (-before +after):\n%s", what, diff)
	}
}

// serve creates a Service with an address, and the record of its block as the controller writes it.
func serve(t *testing.T) {
	t.Helper()
	services := cp.Kube().CoreV1().Services(metav1.NamespaceDefault)
	_, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: servedService},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = services.Patch(t.Context(), servedService, types.MergePatchType, []byte(published), metav1.PatchOptions{},
		"status")
	must(t, err)
	_, err = cp.IPBlocks().Create(t.Context(), &v1beta1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: servedService, Finalizers: []string{contract.IPBlockFinalizer}},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared, Source: v1beta1.SourceBrought,
			BlockID: "60473c2509268bc77fd06d29"},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = cp.IPBlocks().Patch(t.Context(), servedService, types.MergePatchType, []byte(recorded),
		metav1.PatchOptions{}, "status")
	must(t, err)
}

// forgetInstallation deletes what helm uninstall keeps, but for the definition, which every control plane of the tests
// has, and what was served.
func forgetInstallation(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := controlplane.ForgetIPBlock(ctx, cp.IPBlocks(), servedService); err != nil {
		t.Error(err)
	}
	errs := []error{cp.Kube().CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, servedService,
		metav1.DeleteOptions{})}
	policies := cp.Kube().AdmissionregistrationV1()
	for _, name := range guards {
		errs = append(errs,
			policies.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}),
			policies.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}
