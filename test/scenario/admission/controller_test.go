package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func slice(name, service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	}
}

// inKubeSystem makes what others have in kube-system.
func inKubeSystem(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	const namespace = metav1.NamespaceSystem
	must2(admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("coredns"), metav1.CreateOptions{}))(t)
	must2(admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("phoenixnap-announcer"),
		metav1.CreateOptions{}))(t)
	must2(admin.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice("kube-dns-1", "kube-dns"),
		metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = admin.CoreV1().ConfigMaps(namespace).Delete(cleanup(t), "coredns", metav1.DeleteOptions{})
		_ = admin.CoreV1().ConfigMaps(namespace).Delete(cleanup(t), "phoenixnap-announcer", metav1.DeleteOptions{})
		_ = admin.DiscoveryV1().EndpointSlices(namespace).Delete(cleanup(t), "kube-dns-1", metav1.DeleteOptions{})
	})
}

// TestControllerWritesItsOwn writes everything that the controller keeps in kube-system.
func TestControllerWritesItsOwn(t *testing.T) {
	install(t)
	client := account(t, "phoenixnap-cloud-controller-manager")
	configs := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	made, err := configs.Create(t.Context(), configMap("phoenixnap-members"), metav1.CreateOptions{})
	must(t, err)
	made.Data = map[string]string{"a": "b"}
	must2(configs.Update(t.Context(), made, metav1.UpdateOptions{}))(t)
	must(t, clientOf(t, cp.Config()).CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), made.Name,
		metav1.DeleteOptions{}))

	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	endpoints, err := slices.Create(t.Context(), slice("phoenixnap-control-plane-1", "phoenixnap-control-plane"),
		metav1.CreateOptions{})
	must(t, err)
	endpoints.Endpoints = nil
	must2(slices.Update(t.Context(), endpoints, metav1.UpdateOptions{}))(t)
	must(t, slices.Delete(t.Context(), endpoints.Name, metav1.DeleteOptions{}))

	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	held, err := leases.Create(t.Context(), lease("phoenixnap-cloud-controller-manager", "controller"),
		metav1.CreateOptions{})
	must(t, err)
	must2(leases.Update(t.Context(), held, metav1.UpdateOptions{}))(t)
	must(t, clientOf(t, cp.Config()).CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(), held.Name,
		metav1.DeleteOptions{}))

	services := client.CoreV1().Services(metav1.NamespaceSystem)
	service := loadBalancer("phoenixnap-control-plane")
	service.Namespace = metav1.NamespaceSystem
	must2(services.Create(t.Context(), service, metav1.CreateOptions{}))(t)
	must2(services.Patch(t.Context(), service.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{}))(t)
	must(t, services.Delete(t.Context(), service.Name, metav1.DeleteOptions{}))
}

// TestControllerIsConfined tries what RBAC lets it do to what others have there, and what RBAC refuses.
func TestControllerIsConfined(t *testing.T) {
	admin := install(t)
	inKubeSystem(t, admin)
	client := account(t, "phoenixnap-cloud-controller-manager")
	configs := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	var found []error
	collect := func(_ any, err error) { found = append(found, err) }
	collect(configs.Create(t.Context(), configMap("another"), metav1.CreateOptions{}))
	collect(configs.Create(t.Context(), configMap("phoenixnap-ip-block-60473c2509268bc77fd06d40"),
		metav1.CreateOptions{}))
	collect(slices.Create(t.Context(), slice("kube-dns-2", "kube-dns"), metav1.CreateOptions{}))
	collect(slices.Update(t.Context(), slice("kube-dns-1", "kube-dns"), metav1.UpdateOptions{}))
	collect(slices.Update(t.Context(), slice("kube-dns-1", "phoenixnap-control-plane"), metav1.UpdateOptions{}))
	collect(nil, slices.Delete(t.Context(), "kube-dns-1", metav1.DeleteOptions{}))
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	for _, name := range []string{"kube-controller-manager", "phoenixnap-agent-srv-a", "plndr-svcs-lock"} {
		collect(leases.Create(t.Context(), lease(name, "controller"), metav1.CreateOptions{}))
	}
	for i, err := range found {
		if !refusedBy(err, "phoenixnap-controller") {
			t.Errorf("attempt %d: %v", i+1, err)
		}
	}
	for _, name := range []string{"coredns", "phoenixnap-announcer"} {
		if _, err := configs.Update(t.Context(), configMap(name), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("ConfigMap %s is updated: %v", name, err)
		}
		if err := configs.Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("ConfigMap %s is deleted: %v", name, err)
		}
	}
}
