//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/forward"
)

// egressConfig has the API server, which is outside of the servers' network, connect to kubelets by a proxy
// (EgressSelectorConfiguration, apiserver.k8s.io/v1beta1).
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {uds: {udsName: %q}}
`

// egressSocket is where the proxy listens.
func (c *Cluster) egressSocket() string { return filepath.Join(c.options.Dir, "egress.sock") }

// egressFlags writes the configuration and returns the flags of kube-apiserver for it.
func (c *Cluster) egressFlags() ([]string, error) {
	path := filepath.Join(c.options.Dir, "egress.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, egressConfig, c.egressSocket()), 0o600); err != nil {
		return nil, fmt.Errorf("configure the way to kubelets: %w", err)
	}
	return []string{"--egress-selector-config-file=" + path, "--kubelet-preferred-address-types=InternalIP"}, nil
}

// serveEgress starts the proxy. It ends with the lab, or with Stop.
func (c *Cluster) serveEgress(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", c.egressSocket())
	if err != nil {
		return fmt.Errorf("open the way to kubelets: %w", err)
	}
	c.egress = &http.Server{Handler: egress{c.Lab}, ReadHeaderTimeout: time.Minute}
	go func() { _ = c.egress.Serve(listener) }()
	return nil
}

// egress is a proxy that knows only the method CONNECT (RFC 9110, section 9.3.6). It connects from the management host.
type egress struct{ *lab.Lab }

func (e egress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is known", http.StatusMethodNotAllowed)
		return
	}
	far, err := e.Dial(r.Context(), lab.Management, r.RequestURI)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		far.Close()
		return
	}
	if _, err := fmt.Fprint(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		near.Close()
		far.Close()
		return
	}
	forward.Join(context.WithoutCancel(r.Context()), near, far)
}
