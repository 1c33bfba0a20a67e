package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// etcdData is the directory of etcd's data in that of the control plane.
const etcdData = "etcd"

// readyPoll is how often the API server is asked while it starts.
const readyPoll = 50 * time.Millisecond

// server is one of the two processes.
type server struct {
	name    string
	process *subprocess.Process
	log     string
}

// startServer starts a program whose output is appended to a file. It outlives ctx.
func startServer(ctx context.Context, program, log string, args []string) (*server, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Stdout = file
	cmd.Stderr = file
	// Variables such as ETCD_NAME would configure etcd; proxies are of no use on loopback.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(log), "TMPDIR=" + os.TempDir()}
	process, err := subprocess.Start(cmd)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(filepath.Base(log), ".")
	return &server{name: name, process: process, log: log}, nil
}

// watch returns an error if the server ends before ready is closed.
func (s *server) watch(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return nil
	case <-s.process.Done():
		err := s.process.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		return fmt.Errorf("%s ended: %w: its log ends with: %s", s.name, err, s.lastLines())
	}
}

// lastLines returns the end of the log in one line, for an error.
func (s *server) lastLines() string {
	content, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// untilReady asks until /readyz says ok and the namespaces default and kube-system are there.
func untilReady(ctx context.Context, client kubernetes.Interface) (err error) {
	if wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		err = readyOnce(ctx, client)
		return err == nil, nil
	}) != nil {
		return fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
	}
	return nil
}

func readyOnce(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// etcdArguments has etcd serve on loopback over TLS and let in only holders of a certificate of its own
// authority. Nothing is synced to disk: the data live as long as the process.
func etcdArguments(dir string, clientPort, peerPort int) []string {
	client := fmt.Sprintf("https://127.0.0.1:%d", clientPort)
	peer := fmt.Sprintf("https://127.0.0.1:%d", peerPort)
	tls := func(prefix string) []string {
		return []string{
			"--" + prefix + "cert-file=" + filepath.Join(dir, etcdServerFile+".crt"),
			"--" + prefix + "key-file=" + filepath.Join(dir, etcdServerFile+".key"),
			"--" + prefix + "trusted-ca-file=" + filepath.Join(dir, etcdAuthorityFile+".crt"),
			"--" + prefix + "client-cert-auth",
		}
	}
	return slices.Concat(tls(""), tls("peer-"), []string{
		"--name=etcd",
		"--data-dir=" + filepath.Join(dir, etcdData),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=etcd=" + peer,
		"--socket-reuse-port",
		"--unsafe-no-fsync",
		"--log-level=warn",
	})
}

// apiServerArguments has kube-apiserver serve on loopback. A loopback address cannot be an endpoint of the
// Service "kubernetes", so there is no endpoint reconciler.
func apiServerArguments(dir string, etcdPort, port int) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", etcdPort),
		"--etcd-cafile=" + file(etcdAuthorityFile+".crt"),
		"--etcd-certfile=" + file(etcdClientFile+".crt"),
		"--etcd-keyfile=" + file(etcdClientFile+".key"),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--permit-port-sharing",
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + dir,
		"--tls-cert-file=" + file(apiServerFile+".crt"),
		"--tls-private-key-file=" + file(apiServerFile+".key"),
		"--client-ca-file=" + file(authorityFile+".crt"),
		"--kubelet-client-certificate=" + file(kubeletClientFile+".crt"),
		"--kubelet-client-key=" + file(kubeletClientFile+".key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + file(serviceAccountFile+".key"),
		"--service-account-signing-key-file=" + file(serviceAccountFile+".key"),
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
	}
}

// StartController starts the shipped controller as the ServiceAccount of its manifest, which has to be applied, with
// cloudConfig as its file cloud-sa.json. It outlives ctx. Its files and controller.log are in dir.
func (c *ControlPlane) StartController(
	ctx context.Context, dir string, cloudConfig []byte, flags ...string,
) (*subprocess.Process, error) {
	program, err := tools.Product(ctx, "./controller")
	if err != nil {
		return nil, fmt.Errorf("build the controller: %w", err)
	}
	config, err := c.ServiceAccount(ctx, "kube-system", "phoenixnap-cloud-controller-manager")
	if err != nil {
		return nil, fmt.Errorf("token of the controller: %w", err)
	}
	kubeconfig := filepath.Join(dir, "controller.kubeconfig")
	if err := WriteKubeconfig(kubeconfig, config, ""); err != nil {
		return nil, fmt.Errorf("kubeconfig of the controller: %w", err)
	}
	secret := filepath.Join(dir, "cloud-sa.json")
	if err := os.WriteFile(secret, cloudConfig, 0o600); err != nil {
		return nil, fmt.Errorf("config secret of the controller: %w", err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	return StartProgram(dir, "controller", program, append([]string{
		"--cloud-provider=phoenixnap", "--cloud-config=" + secret, "--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(dir, "controller-certs"), "--v=2",
	}, flags...)...)
}

// StartProgram starts a program that outlives the context of its start, in dir; its output goes to <name>.log there.
func StartProgram(dir, name, program string, args ...string) (*subprocess.Process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(program, args...) //nolint:noctx // it ends with Stop
	cmd.Dir = dir
	cmd.Stdout = log
	cmd.Stderr = log
	process, err := subprocess.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return process, nil
}

// freePort finds a free port. A program that cannot report which port it took ends with a clear error if another one
// takes it in the next moment.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close() //nolint:errcheck // it has served its purpose
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP {
		return 0, fmt.Errorf("find a free port: %v is no TCP address", listener.Addr())
	}
	return address.Port, nil
}
