package orphans

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// claims reports whether the Service needs its block: it must have an address from us, or has not
// given one back yet. A Service of another class, and the framework's finalizer on it, are not ours.
func claims(s *corev1.Service) bool {
	ours := s.Spec.LoadBalancerClass == nil || contract.HasOwnClass(s)
	return slices.Contains(s.Finalizers, contract.LoadBalancerFinalizer) || contract.Served(s) ||
		(ours && slices.Contains(s.Finalizers, servicehelper.LoadBalancerCleanupFinalizer))
}

// add notes a Service.
func (f *facts) add(s *corev1.Service) {
	if claims(s) {
		f.claims[contract.ServiceTag(s.Namespace, s.Name)] = true
	}
	f.record(s.Annotations)
}

func (f *facts) record(annotations map[string]string) {
	raw := annotations[contract.ServiceIPPurchase]
	if raw == "" {
		return
	}
	r := recorded{raw: raw}
	if purchase, err := contract.ParsePurchase(raw); err == nil && purchase != nil {
		r.time = purchase.Time
	}
	f.purchases = append(f.purchases, r)
}

// recordNodes notes which block was bought for the nodes last. A record that cannot be read names none.
func (f *facts) recordNodes(record *corev1.ConfigMap) {
	if record.Name != purchase.NodesName {
		return
	}
	if made, err := contract.ParsePurchase(record.Annotations[contract.ServiceIPPurchase]); err == nil && made != nil {
		f.nodesRecorded = made.BlockID
	}
}

func (c *Collector) noFacts(cluster string) facts {
	return facts{cluster: cluster, now: c.config.Now(), claims: map[string]bool{}, held: map[string]bool{}}
}

// known are the facts that cost next to nothing: what the informer has and, for shared blocks, the ledgers. What they
// call an orphan must be checked again.
func (c *Collector) known(ctx context.Context, cluster string, shared bool) (facts, error) {
	f := c.noFacts(cluster)
	if shared {
		if err := c.addHolders(ctx, &f); err != nil {
			return facts{}, err
		}
	}
	services, err := c.config.Services.Lister().List(labels.Everything())
	if err != nil {
		return facts{}, fmt.Errorf("list Services: %w", err)
	}
	for _, service := range services {
		f.add(service)
	}
	return f, nil
}

// live are the facts as the API has them now, all of them read after the call.
func (c *Collector) live(ctx context.Context, cluster string) (facts, error) {
	f := c.noFacts(cluster)
	services, err := c.config.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return facts{}, fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		f.add(&services.Items[i])
	}
	if err := c.addHolders(ctx, &f); err != nil {
		return facts{}, err
	}
	for _, name := range []string{purchase.PoolName(contract.PoolDefault), purchase.NodesName} {
		record, err := c.config.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return facts{}, fmt.Errorf("read ConfigMap %s/%s, which records purchases: %w", metav1.NamespaceSystem,
				name, err)
		default:
			f.record(record.Annotations)
			f.recordNodes(record)
		}
	}
	return f, nil
}

func (c *Collector) addHolders(ctx context.Context, f *facts) error {
	ledgers, err := c.config.Ledgers.List(ctx)
	if err != nil {
		return err
	}
	for _, l := range ledgers {
		f.held[l.BlockID] = !l.Empty()
	}
	return nil
}

// clusterUID names the cluster: the UID of the namespace kube-system, which is also the object of events.
func (c *Collector) clusterUID(ctx context.Context) (string, error) {
	if c.namespace != nil {
		return string(c.namespace.UID), nil
	}
	namespace, err := c.config.Kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the UID of namespace %s, which names the cluster: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("namespace %s has no UID to name the cluster by", metav1.NamespaceSystem)
	}
	c.namespace = namespace
	return string(namespace.UID), nil
}
