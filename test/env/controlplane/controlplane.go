// Package controlplane runs a real etcd and a real kube-apiserver on loopback for tests and the demo.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

const (
	// ServiceCIDR is the range of cluster IPs (kube-apiserver --service-cluster-ip-range).
	ServiceCIDR = "10.96.0.0/16"
	// ServerName is a name that the API server's certificate is always valid for; a client that reaches the
	// server under another address checks the certificate against it (tls-server-name of a kubeconfig).
	ServerName = "kubernetes.default.svc"

	// apiServerGrace and etcdGrace bound an orderly end; with an idle API server it takes about a second.
	apiServerGrace = 15 * time.Second
	etcdGrace      = 10 * time.Second
)

// Options change how a control plane starts. The zero value is right for most tests.
type Options struct {
	// Names are further names and IP addresses that the API server's certificate is valid for.
	Names []string
	// LogDir keeps etcd.log and kube-apiserver.log. Empty means that they vanish with the control plane.
	LogDir string
	// APIServerArgs are appended to the arguments of kube-apiserver; a repeated flag replaces ours.
	APIServerArgs []string
	// Manifests are applied at the end of the start (see ApplyFiles): paths below the root of the source tree.
	Manifests []string
}

// ControlPlane is a running etcd and kube-apiserver. Both end when this process ends, however it ends.
type ControlPlane struct {
	dir       *scratch
	logDir    string
	options   Options
	snapshots int
	url       string
	authority *authority
	ports     []*port
	etcd      *server
	apiServer *server
	admin     *rest.Config
	kube      kubernetes.Interface
	ipBlocks  *client.IPBlocks
	networks  *client.PublicNetworks
}

// definitions is what every control plane knows besides the kinds of Kubernetes.
var definitions = []string{"deploy/crds/networking.phoenixnap.com_ipblocks.yaml",
	"deploy/crds/networking.phoenixnap.com_publicnetworks.yaml"}

// Start starts etcd and kube-apiserver and waits until the API server is ready and has made its namespaces. The
// context bounds only the start; Stop ends the control plane. RBAC and the Node authorizer are on, as is the
// admission plugin NodeRestriction. No controllers run: what a controller manager would make, tests make.
func Start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	cp := &ControlPlane{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the control plane: %w", err), cp.Stop())
		}
	}()
	if err := cp.prepare(ctx, o); err != nil {
		return nil, err
	}
	if err := cp.startServers(ctx); err != nil {
		return nil, err
	}
	if err := cp.waitReady(ctx); err != nil {
		return nil, err
	}
	if err := cp.define(ctx); err != nil {
		return nil, err
	}
	if err := cp.applyFromRoot(ctx, o.Manifests); err != nil {
		return nil, err
	}
	return cp, nil
}

// prepare makes what the servers need: a directory, ports and certificates.
func (c *ControlPlane) prepare(ctx context.Context, o Options) (err error) {
	if c.dir, err = newScratch(ctx, "phoenixnap-controlplane-*"); err != nil {
		return err
	}
	c.logDir = o.LogDir
	if c.logDir == "" {
		c.logDir = c.dir.path
	}
	if err := os.MkdirAll(c.logDir, 0o755); err != nil {
		return err
	}
	for range 3 {
		p, err := reservePort(ctx)
		if err != nil {
			return err
		}
		c.ports = append(c.ports, p)
	}
	c.url = fmt.Sprintf("https://127.0.0.1:%d", c.ports[apiServerPort].number)
	if c.authority, err = issueAll(c.dir.path, o.Names); err != nil {
		return err
	}
	if c.admin, err = c.User("admin", "system:masters"); err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	if c.ipBlocks, err = client.New(c.admin); err != nil {
		return err
	}
	c.networks, err = client.NewPublicNetworks(c.admin)
	return err
}

// define installs the kinds of this project, and waits until they are served.
func (c *ControlPlane) define(ctx context.Context) error {
	if err := c.applyFromRoot(ctx, definitions); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.ipBlocks.List(ctx, metav1.ListOptions{})
		if err == nil {
			_, err = c.networks.List(ctx, metav1.ListOptions{})
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// The places of the three reserved ports.
const (
	etcdClientPort = iota
	etcdPeerPort
	apiServerPort
)

// startServers starts both at once: the API server waits for its etcd by itself.
func (c *ControlPlane) startServers(ctx context.Context) error {
	etcd, err := tools.Binary(ctx, "etcd")
	if err != nil {
		return err
	}
	apiServer, err := tools.Binary(ctx, "kube-apiserver")
	if err != nil {
		return err
	}
	etcdArgs := etcdArguments(c.dir.path, c.ports[etcdClientPort].number, c.ports[etcdPeerPort].number)
	if c.etcd, err = startServer(ctx, etcd, filepath.Join(c.logDir, "etcd.log"), etcdArgs); err != nil {
		return err
	}
	apiServerArgs := apiServerArguments(c.dir.path, c.ports[etcdClientPort].number, c.ports[apiServerPort].number)
	c.apiServer, err = startServer(ctx, apiServer, filepath.Join(c.logDir, "kube-apiserver.log"),
		append(apiServerArgs, c.options.APIServerArgs...))
	return err
}

// Stop ends the API server, then its etcd (without it the API server would wait for a long time), and removes
// everything but the logs of Options.LogDir. It may be called more than once. The error names a server that had
// to be killed.
func (c *ControlPlane) Stop() error {
	var errs []error
	if c.apiServer != nil {
		errs = append(errs, c.apiServer.process.Stop(apiServerGrace))
	}
	if c.etcd != nil {
		errs = append(errs, c.etcd.process.Stop(etcdGrace))
	}
	for _, p := range c.ports {
		errs = append(errs, p.release())
	}
	if c.dir != nil {
		errs = append(errs, c.dir.remove())
	}
	return errors.Join(errs...)
}

// URL is the address of the API server, https://127.0.0.1:<port>.
func (c *ControlPlane) URL() string { return c.url }

// Port is the port on 127.0.0.1 that the API server listens on.
func (c *ControlPlane) Port() int { return c.ports[apiServerPort].number }

// CA is the PEM certificate of the authority that signed the API server's certificate.
func (c *ControlPlane) CA() []byte { return c.authority.certificate }

// CAKey is the private key of the cluster's authority, in PEM, which control-plane nodes have.
func (c *ControlPlane) CAKey() ([]byte, error) {
	return keyutil.MarshalPrivateKeyToPEM(c.authority.key)
}

// PIDs are the process IDs of etcd and kube-apiserver.
func (c *ControlPlane) PIDs() []int { return []int{c.etcd.process.PID(), c.apiServer.process.PID()} }

// Config returns a client configuration of a cluster administrator (group system:masters).
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kube is a client of a cluster administrator.
func (c *ControlPlane) Kube() kubernetes.Interface { return c.kube }

// waitReady waits for the API server's readiness and for the namespaces that it makes after that. A server that
// ends meanwhile ends the wait with the last lines of its log.
func (c *ControlPlane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	for _, s := range []*server{c.etcd, c.apiServer} {
		group.Go(func() error { return s.watch(ctx, ready) })
	}
	group.Go(func() error {
		defer close(ready)
		if err := untilReady(ctx, c.kube); err != nil {
			return fmt.Errorf("wait for the API server: %w: its log ends with: %s", err, c.apiServer.lastLines())
		}
		return nil
	})
	return group.Wait()
}
