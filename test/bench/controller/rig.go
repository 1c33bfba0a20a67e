package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools/subprocess"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

const controllerName = "phoenixnap-cloud-controller-manager"

// setting defines what a rig is made of.
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

// rig is the shipped controller as its ServiceAccount, a real API server and a simulated account.
type rig struct {
	sim  *pnapsim.Sim
	kube kubernetes.Interface

	plane      *controlplane.ControlPlane
	controller *subprocess.Process
	server     *http.Server
	serving    chan error
	log        string
	dir        string
}

// start brings everything up; stop must be called even after an error. Logs go to dir.
func start(ctx context.Context, dir string, s setting) (_ *rig, err error) {
	r := &rig{dir: dir, log: filepath.Join(dir, "controller.log")}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if err := r.startControlPlane(ctx); err != nil {
		return nil, err
	}
	url, err := r.startAccount(ctx, s)
	if err != nil {
		return nil, err
	}
	return r, r.startController(ctx, url, s)
}

func (r *rig) startControlPlane(ctx context.Context) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{LogDir: r.dir})
	if err != nil {
		return err
	}
	r.plane = plane
	root, err := tools.ModuleRoot()
	if err != nil {
		return err
	}
	if err := plane.ApplyFiles(ctx, filepath.Join(root, "deploy/base/controller.yaml")); err != nil {
		return err
	}
	r.kube, err = kubernetes.NewForConfig(plane.Config())
	return err
}

func (r *rig) startAccount(ctx context.Context, s setting) (url string, err error) {
	system, err := r.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	r.sim = pnapsim.New(pnapsim.Config{Clock: pnapsim.NewRealClock(s.scale), Latency: s.latency, Specs: s.specs,
		ServerStock: s.servers + 1})
	if err := r.sim.Seed(account(s.servers, string(system.UID))); err != nil {
		return "", err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serve the account: %w", err)
	}
	r.server = &http.Server{Handler: r.sim.Handler(), ReadHeaderTimeout: 10 * time.Second}
	r.serving = make(chan error, 1)
	go func() { r.serving <- r.server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

// startController runs the controller with the shipped flags.
func (r *rig) startController(ctx context.Context, url string, s setting) error {
	program, err := tools.Product(ctx, "./controller")
	if err != nil {
		return err
	}
	account, err := r.plane.ServiceAccount(ctx, metav1.NamespaceSystem, controllerName)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	secret := filepath.Join(r.dir, "cloud-sa.json")
	if err := controlplane.WriteKubeconfig(kubeconfig, account, ""); err != nil {
		return err
	}
	if err := os.WriteFile(secret, cloudConfig(url, s), 0o600); err != nil {
		return fmt.Errorf("write the secret: %w", err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(r.log)
	if err != nil {
		return fmt.Errorf("log of the controller: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "--cloud-config="+secret,
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port), "--cert-dir="+r.dir, "--v=2")
	cmd.Dir = r.dir
	cmd.Stdout = log
	cmd.Stderr = log
	r.controller, err = subprocess.Start(cmd)
	return err
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
func (r *rig) stop() error {
	var errs []error
	if r.controller != nil {
		errs = append(errs, r.controller.Stop(10*time.Second))
		r.controller = nil
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
		if err := <-r.serving; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
		r.server = nil
	}
	if r.plane != nil {
		errs = append(errs, r.plane.Stop())
	}
	return errors.Join(errs...)
}

// alive is an error when the controller has ended.
func (r *rig) alive() error {
	select {
	case <-r.controller.Done():
		return fmt.Errorf("the controller ended (%w), see %s", r.controller.Wait(), r.log)
	default:
		return nil
	}
}

// mark is the number of the last request so far; since returns those after one.
func (r *rig) mark() int {
	entries := r.sim.Log(0)
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Seq
}

func (r *rig) since(mark int) calls { return r.sim.Log(mark) }

// broken are the rules of the API that the controller broke.
func (r *rig) broken() error {
	var errs []error
	for _, violation := range r.sim.Violations() {
		errs = append(errs, fmt.Errorf("rule broken: %s", violation))
	}
	return errors.Join(errs...)
}

// eventually asks until a check succeeds; the error of a check that never does is its last one.
func (r *rig) eventually(ctx context.Context, every, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if dead := r.alive(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w (controller's log: %s)", within, err, r.log)
		case <-ticker.C:
		}
	}
}

// freePort finds a free port. Another program may take it in the next moment; the controller then
// ends with a clear error.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close() //nolint:errcheck // it has served its purpose
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: %v is no TCP address", listener.Addr())
	}
	return address.Port, nil
}
