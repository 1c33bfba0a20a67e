package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// process is the controller's own binary at work against a real control plane, as the ServiceAccount
// that is shipped, and a simulated phoenixNAP API.
type process struct {
	t      *testing.T
	log    string
	health string
	config string // path of the cloud config
	api    string
	cmd    *exec.Cmd
	done   chan error
	ended  bool
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := tools.Product(t.Context(), "./controller")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func startController(t *testing.T, apiURL string, args ...string) *process {
	t.Helper()
	return startReplica(t, "controller", apiURL, nil, args...)
}

// startReplica starts one of several controllers. It reaches the Kubernetes API through via, unless that is nil.
func startReplica(t *testing.T, name, apiURL string, via *recorder, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	if err := plane.ApplyFiles(t.Context(), filepath.Join("..", "deploy", "rendered", "kubeadm",
		"deployment.yaml")); err != nil {
		t.Fatal(err)
	}
	account, err := plane.ServiceAccount(t.Context(), "kube-system", "phoenixnap-cloud-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	if via != nil {
		account.Host = via.url
		account.CAData = via.authority
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, account, ""); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, log: filepath.Join(t.ArtifactDir(), name+".log"), done: make(chan error, 1)}
	p.config = filepath.Join(dir, "cloud.json")
	p.api = apiURL
	p.configure(simtest.ClientID, simtest.ClientSecret)
	port := freePort(t)
	p.health = fmt.Sprintf("https://127.0.0.1:%s/healthz", port)
	p.start(binary(t), append([]string{"--cloud-config=" + p.config, "--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=" + port, "--v=2"},
		args...)...)
	return p
}

// configure puts a cloud config with the given credentials in the place of the one that is there.
func (p *process) configure(id, secret string) {
	p.t.Helper()
	text := fmt.Sprintf(
		`{"clientID":%q,"clientSecret":%q,"base-url":%q,"location":"ASH","loadbalancer":"kube-vip://%s"}`,
		id, secret, p.api, simtest.NetworkID)
	if err := os.WriteFile(p.config+".new", []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.config+".new", p.config); err != nil {
		p.t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (p *process) start(path string, args ...string) {
	p.t.Helper()
	log, err := os.Create(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(p.t.Context()), path, args...)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	p.t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill() // it may have ended by itself
			p.t.Logf("the controller was killed at the end of the test: %v", <-p.done)
		}
		if err := log.Close(); err != nil {
			p.t.Error(err)
		}
		if p.t.Failed() {
			p.t.Log(p.tail())
		}
	})
}

func (p *process) output() string {
	p.t.Helper()
	raw, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(raw)
}

func (p *process) tail() string {
	lines := strings.Split(p.output(), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// end sends SIGTERM and expects a quiet end.
func (p *process) end() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.done:
		p.ended = true
		if err != nil {
			p.t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(patience):
		p.t.Errorf("no end within %s of SIGTERM", patience)
	}
}

func (p *process) healthy() error {
	status, _, err := p.askHealth("")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d", p.health, status)
	}
	return err
}

// askHealth asks for the health, as someone without a permission.
func (p *process) askHealth(query string) (status int, body string, err error) {
	// its own certificate, on loopback
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.health+query, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}
