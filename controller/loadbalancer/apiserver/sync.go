package apiserver

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// sync reads everything from the API and puts right what is not as it should be. Each of its steps may be the last.
func (k *Reconciler) sync(ctx context.Context) error {
	service, err := k.read(ctx, metav1.NamespaceSystem, ServiceName)
	switch {
	case err != nil:
		return err
	case !k.config.Enabled:
		return k.remove(ctx, service)
	case service != nil && !managed(service):
		k.record(service, corev1.EventTypeWarning, eventForeign,
			"The control-plane endpoint needs a Service of this name, but this one lacks the label "+
				labelManagedBy+"="+ManagedBy+" and is not changed. Rename it, or add the label to hand it over")
		return nil
	case service != nil && service.DeletionTimestamp != nil:
		return nil // its end wakes us
	default:
		return k.keep(ctx, service)
	}
}

// keep has the Service and its slices follow the API servers. A Service is made only when there is something for it to
// lead to, for it costs money.
func (k *Reconciler) keep(ctx context.Context, service *corev1.Service) error {
	source, err := k.config.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: apiServerSlices})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of the API servers: %w", err)
	}
	mirrored := mirrors(source.Items)
	servers := backends(mirrored)
	if service == nil && len(servers) == 0 {
		kubernetes, err := k.read(ctx, metav1.NamespaceDefault, kubernetesService)
		if err == nil && kubernetes != nil {
			k.recordNotRoutable(kubernetes)
		}
		return err
	}
	service, err = k.keepService(ctx, service, portOf(k.config.Port, mirrored))
	if err != nil {
		return err
	}
	if err := k.keepSlices(ctx, service, mirrored); err != nil {
		return err
	}
	if len(servers) == 0 {
		k.recordNotRoutable(service)
		return nil
	}
	k.inspect(ctx, service, servers)
	return nil
}

// read returns a Service as the API has it now; nil when there is none.
func (k *Reconciler) read(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	service, err := k.config.Kube.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", namespace, name, err)
	}
	return service, nil
}

// keepService creates the Service, or puts right what is ours in it. A port of 0 is not known and left as it is.
func (k *Reconciler) keepService(ctx context.Context, have *corev1.Service, port int32) (*corev1.Service, error) {
	services := k.config.Kube.CoreV1().Services(metav1.NamespaceSystem)
	if have == nil {
		made, err := services.Create(ctx, newService(port), metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create Service %s/%s: %w", metav1.NamespaceSystem, ServiceName, err)
		}
		klog.FromContext(ctx).Info("Created the Service of the control-plane endpoint", "service", klog.KObj(made),
			"port", port)
		return made, nil
	}
	if port == 0 && len(have.Spec.Ports) > 0 {
		port = have.Spec.Ports[0].Port
	}
	want, changed := restored(have, port)
	if !changed {
		return have, nil
	}
	updated, err := services.Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update Service %s: %w", klog.KObj(have), err)
	}
	klog.FromContext(ctx).Info("Restored the Service of the control-plane endpoint", "service", klog.KObj(updated),
		"port", port)
	return updated, nil
}

// keepSlices writes the slices that are missing or outdated, and then deletes those that no API server needs.
func (k *Reconciler) keepSlices(ctx context.Context, service *corev1.Service, mirrored []mirror) error {
	slices := k.config.Kube.DiscoveryV1().EndpointSlices(service.Namespace)
	listed, err := slices.List(ctx, metav1.ListOptions{LabelSelector: ourSlices})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s: %w", klog.KObj(service), err)
	}
	have := map[string]*discoveryv1.EndpointSlice{}
	for i := range listed.Items {
		have[listed.Items[i].Name] = &listed.Items[i]
	}
	for _, m := range mirrored {
		if err := k.keepSlice(ctx, have[m.name], m.slice(service)); err != nil {
			return err
		}
		delete(have, m.name)
	}
	for _, stale := range have {
		if err := k.deleteSlice(ctx, stale); err != nil {
			return err
		}
	}
	return nil
}

func (k *Reconciler) keepSlice(ctx context.Context, have, want *discoveryv1.EndpointSlice) error {
	slices := k.config.Kube.DiscoveryV1().EndpointSlices(want.Namespace)
	var err error
	switch {
	case have == nil:
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case outdated(have, want):
		want.ResourceVersion = have.ResourceVersion
		want.Annotations = have.Annotations
		_, err = slices.Update(ctx, want, metav1.UpdateOptions{})
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s: %w", klog.KObj(want), err)
	}
	klog.FromContext(ctx).Info("The control-plane endpoint follows the API servers", "slice", klog.KObj(want),
		"endpoints", addressesOf(want))
	return nil
}

// deleteSlice deletes exactly the slice that was read.
func (k *Reconciler) deleteSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID,
		ResourceVersion: &slice.ResourceVersion}}
	err := k.config.Kube.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete EndpointSlice %s: %w", klog.KObj(slice), err)
	}
	klog.FromContext(ctx).Info("Deleted an EndpointSlice that no API server needs", "slice", klog.KObj(slice))
	return nil
}

// remove deletes what an enabled keeper made, and nothing else. The address is given back as with any Service.
func (k *Reconciler) remove(ctx context.Context, service *corev1.Service) error {
	if service != nil && !managed(service) {
		return nil
	}
	if service != nil && service.DeletionTimestamp == nil {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &service.UID,
			ResourceVersion: &service.ResourceVersion}}
		err := k.config.Kube.CoreV1().Services(service.Namespace).Delete(ctx, service.Name, options)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Service %s: %w", klog.KObj(service), err)
		}
		klog.FromContext(ctx).Info("Deleted the Service of the control-plane endpoint, which is switched off",
			"service", klog.KObj(service))
	}
	listed, err := k.config.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: ourSlices})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of the control-plane endpoint: %w", err)
	}
	for i := range listed.Items {
		if err := k.deleteSlice(ctx, &listed.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// inspect reports whether clients will accept the API servers' certificates at the published address.
func (k *Reconciler) inspect(ctx context.Context, service *corev1.Service, servers []netip.AddrPort) {
	address, published := publishedAt(service)
	if !published {
		k.told = ""
		return
	}
	v := judge(k.look(ctx, servers, address), address, service.Spec.Ports[0].Port)
	k.record(service, v.eventType, v.reason, v.text)
}

// record sends an event when it says something else than the last one.
func (k *Reconciler) record(service *corev1.Service, eventType, reason, text string) {
	if said := string(service.UID) + reason + text; said != k.told {
		k.told = said
		k.config.Events.Event(service, eventType, reason, text)
	}
}

func (k *Reconciler) recordNotRoutable(service *corev1.Service) {
	k.record(service, corev1.EventTypeWarning, eventNotRoutable,
		"No API server advertises an IPv4 address that other machines can reach (Service default/kubernetes), "+
			"so the control-plane endpoint leads nowhere. Start kube-apiserver with --advertise-address set to an "+
			"address of the node")
}

func addressesOf(slice *discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	return addresses
}
