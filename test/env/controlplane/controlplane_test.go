//go:build linux

package controlplane

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// orphanVariable has the test binary play a program that is killed while its control plane runs.
const orphanVariable = "CONTROLPLANE_ORPHAN"

// cp is shared by the tests that do not need one of their own.
var cp *ControlPlane

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		os.Exit(orphan())
	}
	os.Exit(Main(m, &cp))
}

// orphan starts a control plane, prints its directory and processes and waits to be killed.
func orphan() int {
	started, err := Start(context.Background(), Options{})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, started.dir.path, started.PIDs()[0], started.PIDs()[1],
		started.dir.remover.Process.Pid)
	<-started.apiServer.process.Done()
	return 2
}

// The server is of the minor that was asked for, by default the newest.
func TestMinor(t *testing.T) {
	version, err := clientOf(t, cp.Config()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	want := cmp.Or(os.Getenv(tools.MinorVariable), tools.Minors()[0])
	if got := version.Major + "." + version.Minor; got != want || !strings.HasPrefix(version.GitVersion, "v"+want+".") {
		t.Errorf("the API server is of %s (%s), want %s", got, version.GitVersion, want)
	}
}

func TestUserHasWhatRBACGrants(t *testing.T) {
	ctx := t.Context()
	unknown := clientOf(t, mustUser(t, "jane", "team"))
	if _, err := unknown.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list Nodes without a binding: %v, want Forbidden", err)
	}
	who, err := unknown.AuthenticationV1().SelfSubjectReviews().Create(ctx, selfReview(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if user := who.Status.UserInfo; user.Username != "jane" || !slices.Contains(user.Groups, "team") {
		t.Errorf("the server identifies the user as %s in %v, want jane in team", user.Username, user.Groups)
	}
	binding := Manifest{Name: "binding", Data: []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: team-views}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-problem-detector}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}]
`)}
	if err := cp.Apply(ctx, binding); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := unknown.CoreV1().Nodes().Get(ctx, "absent", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get a Node with a binding: %w, want NotFound", err)
		}
		return nil
	})
}

func TestNodeIsConfinedToItself(t *testing.T) {
	ctx := t.Context()
	kubelet := clientOf(t, mustUser(t, "system:node:one", "system:nodes"))
	t.Cleanup(func() {
		if err := clientOf(t, cp.Config()).CoreV1().Nodes().Delete(context.WithoutCancel(ctx), "one",
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"one", "two"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if want := name == "two"; apierrors.IsForbidden(err) != want || (err != nil) != want {
			t.Errorf("kubelet of node one creates Node %s: %v, want it forbidden: %v", name, err, want)
		}
	}
}

func TestServiceAccountToken(t *testing.T) {
	ctx := t.Context()
	if _, err := cp.ServiceAccount(ctx, "kube-system", "absent"); !apierrors.IsNotFound(err) {
		t.Errorf("token of a missing ServiceAccount: %v, want NotFound", err)
	}
	account := Manifest{Name: "account",
		Data: []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: kube-system}}")}
	if err := cp.Apply(ctx, account); err != nil {
		t.Fatal(err)
	}
	config, err := cp.ServiceAccount(ctx, "kube-system", "robot")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, config, ""); err != nil {
		t.Fatal(err)
	}
	loaded, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	who, err := clientOf(t, loaded).AuthenticationV1().SelfSubjectReviews().Create(ctx, selfReview(),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := who.Status.UserInfo.Username; got != "system:serviceaccount:kube-system:robot" {
		t.Errorf("the server identifies the token's holder as %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig with its token has mode %v (%v), want 0600", info.Mode().Perm(), err)
	}
}

func TestTokenOfAPodNamesTheNode(t *testing.T) {
	ctx := t.Context()
	account := Manifest{Name: "account",
		Data: []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: rover, namespace: kube-system}}")}
	if err := cp.Apply(ctx, account); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the Pod exists
		config, err := cp.ServiceAccountOn(ctx, "kube-system", "rover", "moon")
		if err != nil {
			t.Fatal(err)
		}
		who, err := clientOf(t, config).AuthenticationV1().SelfSubjectReviews().Create(ctx, selfReview(),
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := who.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"]; len(got) != 1 ||
			got[0] != "moon" {
			t.Errorf("the server knows the holder to be on %v, want moon", got)
		}
	}
}

// TestAwaitAccess: it is over when the user may, and not before.
func TestAwaitAccess(t *testing.T) {
	user := "reader-" + strconv.FormatInt(time.Now().UnixNano(), 36) // new for each run
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services/status"},
		ResourceNames: []string{"web"}, Verbs: []string{"update"}}}
	over := make(chan error, 1)
	go func() { over <- cp.AwaitAccess(t.Context(), user, "default", rules) }()
	rbac := cp.Kube().RbacV1()
	name := metav1.ObjectMeta{Name: user}
	if _, err := rbac.Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: rules},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-over:
		t.Fatalf("it is over before the role is bound: %v", err)
	default:
	}
	if _, err := rbac.RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := cp.AwaitAccess(ended, user, "kube-system", rules); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), user+" may update services/status") {
		t.Errorf("elsewhere, and not awaited any more: %v", err)
	}
}

// TestKubeconfigForAnotherAddress goes through a forwarder under a name that the certificate lacks.
func TestKubeconfigForAnotherAddress(t *testing.T) {
	forwarder := forward(t, cp.Port())
	config, err := clientConfig(cp.Config(), "https://127.0.0.2:"+forwarder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientOf(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("with tls-server-name %s: %v", config.ServerName, err)
	}
	config.ServerName = ""
	_, err = clientOf(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if unknown := new(x509.HostnameError); !errors.As(err, unknown) {
		t.Errorf("without tls-server-name: %v, want the certificate refused", err)
	}
}

func TestTwoSideBySide(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	other, err := Start(t.Context(), Options{Names: []string{"lab.example", "10.0.0.1"}, LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started after %s", time.Since(begin).Round(time.Millisecond))
	stopped := false
	t.Cleanup(func() {
		if err := other.Stop(); err != nil && !stopped {
			t.Error(err)
		}
	})
	for _, name := range []string{"127.0.0.1", "localhost", ServerName, "lab.example", "10.0.0.1"} {
		if err := handshake(t.Context(), other, name); err != nil {
			t.Errorf("certificate for %s: %v", name, err)
		}
	}
	if err := handshake(t.Context(), other, "elsewhere.example"); err == nil {
		t.Error("the certificate is valid for elsewhere.example, which was not requested")
	}
	ids := [2]string{}
	for i, c := range []*ControlPlane{cp, other} {
		namespace, err := clientOf(t, c.Config()).CoreV1().Namespaces().Get(t.Context(), "kube-system",
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = string(namespace.UID)
	}
	if ids[0] == ids[1] || cp.URL() == other.URL() {
		t.Errorf("both control planes are %s with kube-system %s", cp.URL(), ids[0])
	}
	stopped = true
	checkStop(t, other)
}

// checkStop stops a control plane and looks for what it may have left.
func checkStop(t *testing.T, c *ControlPlane) {
	t.Helper()
	pids, dir := append(c.PIDs(), c.dir.remover.Process.Pid), c.dir.path
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d still runs after Stop", pid)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory %s after Stop: %v, want it gone", dir, err)
	}
	for _, log := range []string{"etcd.log", "kube-apiserver.log"} {
		if _, err := os.Stat(filepath.Join(c.logDir, log)); err != nil {
			t.Errorf("the log of Options.LogDir is gone: %v", err)
		}
	}
	if err := c.Stop(); err != nil {
		t.Errorf("Stop() for the second time: %v", err)
	}
}

func TestNothingIsLeftWhenTheStarterIsKilled(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), orphanVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, func() error {
		for _, field := range fields[1:] {
			if pid, err := strconv.Atoi(field); err != nil || alive(pid) {
				return fmt.Errorf("process %s outlives the killed program (%w)", field, err)
			}
		}
		if _, err := os.Stat(fields[0]); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("directory %s: %w, want it gone", fields[0], err)
		}
		return nil
	})
}

func TestStartSaysWhyAServerEnded(t *testing.T) {
	temporary := t.TempDir()
	logs := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	failed, err := Start(t.Context(), Options{LogDir: logs, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil {
		t.Fatal(errors.Join(errors.New("Start() with an unknown flag succeeded"), failed.Stop()))
	}
	for _, want := range []string{"kube-apiserver", "unknown flag: --no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Start() = %v, want it to contain %q", err, want)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("a failed start left %v (%v)", left, err)
	}
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func mustUser(t *testing.T, name string, groups ...string) *rest.Config {
	t.Helper()
	config, err := cp.User(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// clientConfig goes the way of a real client: through the text of a kubeconfig.
func clientConfig(config *rest.Config, serverURL string) (*rest.Config, error) {
	text, err := Kubeconfig(config, serverURL)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(text)
}

// handshake checks the API server's certificate against a name.
func handshake(ctx context.Context, c *ControlPlane, name string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port())))
	if err != nil {
		return err
	}
	return conn.Close()
}

func alive(pid int) bool {
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// eventually waits for something that another process does.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
