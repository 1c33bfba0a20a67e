//go:build linux

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
)

// setting is the cluster that the agent is in.
type setting struct {
	Options
	plane *controlplane.ControlPlane
	kube  kubernetes.Interface
}

// start brings up the control plane with Nodes, Services and the rights of the manifests.
func (c *setting) start(ctx context.Context) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{LogDir: c.Dir,
		Names: []string{management.Addr().String()}})
	if err != nil {
		return err
	}
	c.plane = plane
	root, err := tools.ModuleRoot()
	if err != nil {
		return err
	}
	if err := plane.ApplyFiles(ctx, filepath.Join(root, "deploy/overlays/kubeadm")); err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(plane.Config()); err != nil {
		return fmt.Errorf("client of the control plane: %w", err)
	}
	c.say("creating %d Nodes and %d Services", c.Nodes, c.Services)
	return c.populate(ctx)
}

func (c *setting) stop() error {
	if c.plane == nil {
		return nil
	}
	return c.plane.Stop()
}

// leaseSeconds is how long the Leases of the Services last: nothing renews them, so they must outlast the measurement.
const leaseSeconds = 24 * 60 * 60

// createLease creates the Lease by which kube-vip elects the announcer of a Service.
func (c *setting) createLease(ctx context.Context, service string) error {
	now := metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "kubevip-" + service},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(announcer), LeaseDurationSeconds: ptr.To[int32](leaseSeconds), AcquireTime: &now,
			RenewTime: &now,
		},
	}
	if _, err := c.kube.CoordinationV1().Leases(metav1.NamespaceDefault).Create(ctx, lease,
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the Lease of Service %s: %w", service, err)
	}
	return nil
}

// kubeconfig writes the agent's credentials, those of its ServiceAccount.
func (c *setting) kubeconfig(ctx context.Context, url string) (string, error) {
	config, err := c.plane.ServiceAccountOn(ctx, metav1.NamespaceSystem, "phoenixnap-agent", server)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Dir, "agent.kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config, url)
}
