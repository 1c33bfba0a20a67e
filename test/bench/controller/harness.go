package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// setting defines what a harness is made of.
type setting struct {
	// servers of the account.
	servers int
	// latency of what the account does after an answer; nil means the simulator's assumptions.
	latency *pnapsim.Latency
	// scale is how many seconds of the account's time pass in a second; 0 means 1.
	scale float64
	// shared has Services share blocks of size.
	shared bool
	size   string
	// specs hold every exchange against the API's documents; nil holds none.
	specs *pnapsim.Specs
}

// harness is the shipped controller as its ServiceAccount, a real API server and a simulated account.
type harness struct {
	sim  *pnapsim.Sim
	kube kubernetes.Interface

	plane      *controlplane.ControlPlane
	controller *subprocess.Process
	server     *http.Server
	serving    chan error
	log        string
}

// start brings everything up; stop must be called even after an error. Logs go to dir.
func start(ctx context.Context, dir string, s setting) (_ *harness, err error) {
	h := &harness{log: filepath.Join(dir, "controller.log")}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()
	if h.plane, err = controlplane.Start(ctx, controlplane.Options{LogDir: dir,
		Manifests: []string{"deploy/base/controller.yaml"}}); err != nil {
		return nil, err
	}
	h.kube = h.plane.Kube()
	url, err := h.startAccount(ctx, s)
	if err != nil {
		return nil, err
	}
	// With the shipped flags.
	kubeconfig := filepath.Join(dir, "controller.kubeconfig")
	h.controller, err = h.plane.StartController(ctx, dir, cloudConfig(url, s),
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	return h, err
}

func (h *harness) startAccount(ctx context.Context, s setting) (url string, err error) {
	system, err := h.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	h.sim = pnapsim.New(pnapsim.Config{Clock: pnapsim.NewRealClock(s.scale), Latency: s.latency, Specs: s.specs,
		ServerStock: s.servers + 1})
	if err := h.sim.Seed(account(s.servers, string(system.UID))); err != nil {
		return "", err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serve the account: %w", err)
	}
	h.server = &http.Server{Handler: h.sim.Handler(), ReadHeaderTimeout: 10 * time.Second}
	h.serving = make(chan error, 1)
	go func() { h.serving <- h.server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

// cloudConfig is the file cloud-sa.json of the controller's secret.
func cloudConfig(url string, s setting) []byte {
	more := ""
	if s.shared {
		more += `, "ipAllocation": "shared"`
	}
	if s.size != "" {
		more += fmt.Sprintf(`, "ipBlockSize": %q`, s.size)
	}
	return fmt.Appendf(nil,
		`{"clientID": %q, "clientSecret": %q, "base-url": %q, "location": %q, "loadbalancer": "kube-vip://%s"%s}`,
		clientID, clientSecret, url, location, networkID, more)
}

// stop ends what runs, the newest first. It may be called more than once.
func (h *harness) stop() error {
	var errs []error
	if h.controller != nil {
		errs = append(errs, h.controller.Stop(10*time.Second))
		h.controller = nil
	}
	if h.server != nil {
		errs = append(errs, h.server.Close())
		if err := <-h.serving; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
		h.server = nil
	}
	if h.plane != nil {
		errs = append(errs, h.plane.Stop())
	}
	return errors.Join(errs...)
}

// alive is an error when the controller has ended.
func (h *harness) alive() error {
	select {
	case <-h.controller.Done():
		return fmt.Errorf("the controller ended (%w), see %s", h.controller.Wait(), h.log)
	default:
		return nil
	}
}

// mark is the number of the last request so far; since returns those after one.
func (h *harness) mark() int {
	entries := h.sim.Log(0)
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Seq
}

func (h *harness) since(mark int) calls { return h.sim.Log(mark) }

// broken are the rules of the API that the controller broke.
func (h *harness) broken() error {
	var errs []error
	for _, violation := range h.sim.Violations() {
		errs = append(errs, fmt.Errorf("rule broken: %s", violation))
	}
	return errors.Join(errs...)
}

// eventually asks until a check succeeds; the error of a check that never does is its last one.
func (h *harness) eventually(ctx context.Context, every, within time.Duration, done func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, every, within, true, func(ctx context.Context) (bool, error) {
		if last = done(ctx); last == nil {
			return true, nil
		}
		return false, h.alive()
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("not within %s: %w (controller's log: %s)", within, last, h.log)
	}
	return err
}

// What the simulated account is called.
const (
	accountID    = "bench"
	clientID     = "bench-client"
	clientSecret = "dN3vQw8Zr1Lx5Tf0"
	networkID    = "60473c2509268bc77fd06d29"
	location     = "ASH"
)

// nodeBlock is large enough to hold an address for each of many members.
var nodeBlock = netip.MustParsePrefix("10.240.0.0/20")

// serverName is the hostname of a server and the name of its Node.
func serverName(i int) string { return fmt.Sprintf("node-%04d", i) }

// account has that many servers, all of them members of the public network.
func account(servers int, clusterUID string) pnapsim.Seed {
	seed := pnapsim.AccountSeed{
		ID: accountID, MaxServers: servers,
		Clients: []pnapsim.ClientSeed{{
			ID: clientID, Secret: clientSecret, Judged: true,
			OwnershipTags: map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID},
		}},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: location, VLAN: 20}},
		Blocks: []pnapsim.BlockSeed{{Name: "nodes", Location: location, CIDR: nodeBlock.String(), Network: networkID,
			BringYourOwn: true}},
	}
	own := nodeBlock.Addr().Next().Next() // after network and gateway
	private := netip.MustParseAddr("10.0.0.11")
	for i := range servers {
		seed.Servers = append(seed.Servers, pnapsim.ServerSeed{
			Hostname: serverName(i), Location: location, NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{private.String()},
			Networks:   []pnapsim.MembershipSeed{{Network: networkID, IPs: []string{own.String()}}},
		})
		own, private = own.Next(), private.Next()
	}
	return pnapsim.Seed{Accounts: []pnapsim.AccountSeed{seed}}
}
