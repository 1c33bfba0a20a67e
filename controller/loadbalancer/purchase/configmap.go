package purchase

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// NodesName is the ConfigMap in kube-system that records purchases of the nodes' block.
const NodesName = "phoenixnap-nodes"

// PoolName is the ConfigMap in kube-system that records purchases for a pool.
func PoolName(pool string) string { return "phoenixnap-pool-" + pool }

// ConfigMap is a Record in the annotation contract.ServiceIPPurchase of a ConfigMap. It serves one
// decision: load, decide, buy. It is not safe for concurrent use.
type ConfigMap struct {
	configMaps typedcorev1.ConfigMapInterface
	name       string
	// object is what was read or written last; nil when it does not exist.
	object *corev1.ConfigMap
}

var _ Record = (*ConfigMap)(nil)

// NewConfigMap returns the record in the ConfigMap of that name in kube-system. It makes no calls: Load it
// before deciding.
func NewConfigMap(kube kubernetes.Interface, name string) *ConfigMap {
	return &ConfigMap{configMaps: kube.CoreV1().ConfigMaps(metav1.NamespaceSystem), name: name}
}

// Load implements Record.
func (c *ConfigMap) Load(ctx context.Context) (*contract.Purchase, error) {
	object, err := c.configMaps.Get(ctx, c.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.object = nil
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the purchase in ConfigMap %s: %w", c.name, err)
	}
	c.object = object
	purchase, err := contract.ParsePurchase(object.Annotations[contract.ServiceIPPurchase])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w: %w; remove the annotation if no IP block was bought",
			metav1.NamespaceSystem, c.name, ErrUnreadable, err)
	}
	return purchase, nil
}

// Save implements Record.
func (c *ConfigMap) Save(ctx context.Context, purchase *contract.Purchase) error {
	wanted, err := c.wanted(purchase)
	if err != nil {
		return err
	}
	var stored *corev1.ConfigMap
	if c.object == nil {
		stored, err = c.configMaps.Create(ctx, wanted, metav1.CreateOptions{})
	} else {
		stored, err = c.configMaps.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return fmt.Errorf("save the purchase in ConfigMap %s: %w (%w)", c.name, ErrOutdated, err)
	case err != nil:
		return fmt.Errorf("save the purchase in ConfigMap %s: %w", c.name, err)
	}
	c.object = stored
	return Kept("ConfigMap "+metav1.NamespaceSystem+"/"+c.name, wanted.Annotations[contract.ServiceIPPurchase],
		stored.Annotations)
}

func (c *ConfigMap) wanted(purchase *contract.Purchase) (*corev1.ConfigMap, error) {
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: metav1.NamespaceSystem}}
	if c.object != nil {
		wanted = c.object.DeepCopy()
	}
	if purchase == nil {
		delete(wanted.Annotations, contract.ServiceIPPurchase)
		return wanted, nil
	}
	encoded, err := purchase.Encode()
	if err != nil {
		return nil, err
	}
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, contract.ServiceIPPurchase, encoded)
	return wanted, nil
}
