//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/e2e/node"
)

const (
	// tree is the directory of the nodes' root file system among the lab's files.
	tree = "node"
	// program is command node among the lab's files.
	program = "make-node"
	// memoryMiB is that of the machine that holds all servers.
	memoryMiB = 3072
	// scale is how much faster the account's time passes.
	scale = 10
)

// site is a cluster with real kubelets on servers of a simulated account.
type site struct {
	*testing.T
	*cluster.Cluster
	kind
	root          string
	kubectl, helm string
	images        *archives
	on            []cluster.Server // those that are switched on
	began         time.Time
}

// newSite starts everything that a user has before the installation, and returns when the kubelets have registered
// their Nodes.
func newSite(t *testing.T, k kind) *site {
	t.Helper()
	root, err := tools.ModuleRoot()
	check(t, err)
	dir := t.TempDir()
	s := &site{T: t, kind: k, root: root}
	if k.announcer == contract.AnnouncerKubeVIP {
		versions, err := tools.KubeVIPs(t.Context())
		check(t, err)
		t.Logf("kube-vip %s, in an image that is called %s as in the manifests", versions[0], kubeVIPImage)
	}
	s.images = buildImages(t, dir, shippedTag(t, filepath.Join(root, s.overlay)), k.judged)
	s.kubectl, err = tools.Binary(t.Context(), "kubectl")
	check(t, err)
	s.helm, err = tools.Binary(t.Context(), "helm")
	check(t, err)
	files, err := nodeTree(t.Context(), tree)
	check(t, err)
	for name, path := range s.images.files(tree) {
		files[name] = path
	}
	files[program], err = tools.Product(t.Context(), "./test/scenario/e2e/cmd/node")
	check(t, err)
	options := cluster.Options{Dir: dir, Kubelets: true, Scale: scale, MemoryMiB: memoryMiB, Files: files,
		Announcer: k.announcer, Account: k.account, Servers: k.servers, Auto: k.auto}
	if k.servers > 2 {
		options.MemoryMiB += memoryMiB / 2 * (k.servers - 2)
	}
	if k.judged {
		options.MemoryMiB = judgeMemoryMiB
		options.ClientPrivate = clientPrivate
		files["kubectl"] = s.kubectl
		files[tools.EndToEndTests], err = tools.Binary(t.Context(), tools.EndToEndTests)
		check(t, err)
	}
	s.Cluster, err = cluster.New(options)
	check(t, err)
	t.Cleanup(s.end)
	s.began = time.Now()
	for _, start := range []func(context.Context) error{s.StartAccount, s.StartControlPlane, s.PublishAPIServer,
		s.StartManagers, s.StartServers} {
		check(t, start(t.Context()))
	}
	// The kernel loads this module when the servers mount their root file systems, both at once. busybox's modprobe
	// skips what /proc/modules lists, even if another process is still loading it, and the second mount would fail.
	// The other one has netfilter see what passes the bridge of the pods, as Kubernetes asks of such a network.
	check(t, s.exec(s.Servers[0], "busybox", "modprobe", "-a", "overlay", "br_netfilter"))
	for _, server := range s.Servers {
		if server.Name != s.later {
			s.switchOn(server)
		}
	}
	return s
}

// switchOn starts containerd, kubelet and kube-proxy on a server, as kubeadm configures them.
func (s *site) switchOn(server cluster.Server) {
	s.Helper()
	s.on = append(s.on, server)
	machine := s.machine(server)
	config, err := installer.Guide(filepath.Join(s.root, "docs/guides/install.md"))
	check(s.T, err)
	config, err = config.For(machine)
	check(s.T, err)
	if machine.NodeIP.IsValid() {
		check(s.T, s.exec(server, "ip", "link", "add", "overlay0", "type", "dummy"))
		check(s.T, s.exec(server, "ip", "address", "add", machine.NodeIP.String()+"/32", "dev", "overlay0"))
	}
	key, err := s.ControlPlane.CAKey()
	check(s.T, err)
	pods := server.Pods.Masked().Addr().As4()
	pods[3] = 128 // the lab's own pod has an address of the lower half
	spec, err := json.Marshal(node.Spec{
		Name: server.Name, Address: server.Private.Addr(), Pods: prefix(pods, 25),
		Kubeadm: config, Joins: machine.Joins, CA: s.ControlPlane.CA(), CAKey: key,
		Admin:      lab.Path(cluster.AdminConfig),
		Kubeconfig: lab.Path(cluster.KubeletConfig(server.Name)), Images: onNode(s.images.first),
		Names: s.images.names(),
		Tree:  []string{"/payload" + lab.Path(tree), lab.Path(tree)},
	})
	check(s.T, err)
	check(s.T, s.Lab.WriteFile(s.Context(), "node-"+server.Name+".json", spec, 0o600))
	check(s.T, s.StartProxy(s.Context(), server))
	_, err = s.Lab.StartProcess(s.Context(), lab.Program{
		Host: server.Name, Name: "node-" + server.Name,
		Args: []string{lab.Path(program), lab.Path("node-" + server.Name + ".json")},
	})
	check(s.T, err)
	if !machine.Joins {
		s.eventually(limit, "kubeadm has uploaded its configuration", func() (bool, string) {
			err := s.exec(server, node.KubeadmInit("upload-config", "all")...)
			if err != nil {
				s.runs(server)
			}
			return err == nil, fmt.Sprint(err)
		})
		check(s.T, s.exec(server, node.KubeadmInit("bootstrap-token")...)) // and all else that kubeadm join reads
	}
}

// exec runs a program on a server.
func (s *site) exec(server cluster.Server, args ...string) error {
	out, err := s.Lab.ExecProgram(s.Context(), lab.Program{Host: server.Name, Timeout: limit, Args: args})
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("%q on %s: %s", args, server.Name, out.Stderr)
	}
	return err
}

// registered waits for the Nodes, which kubeadm then marks if they are of the control plane.
func (s *site) registered() {
	s.Helper()
	for _, server := range s.on {
		s.eventually(limit, "Node "+server.Name+" registered", func() (bool, string) {
			_, err := s.Kube.CoreV1().Nodes().Get(s.Context(), server.Name, metav1.GetOptions{})
			if err != nil {
				s.runs(server)
			}
			return err == nil, fmt.Sprint(err)
		})
		if !s.machine(server).Joins {
			check(s.T, s.exec(server, node.KubeadmInit("mark-control-plane")...))
		}
	}
}

// runs expects that the program which makes a server a node has not ended.
func (s *site) runs(server cluster.Server) {
	s.Helper()
	processes, err := s.Lab.Processes(s.Context(), server.Name)
	check(s.T, err)
	for _, p := range processes {
		if p.Exited {
			out, err := s.Lab.Log(s.Context(), p.Name)
			s.Fatalf("%s ended with %d: %s %v", p.Name, p.Code, out, err)
		}
	}
}

// end keeps the logs where the test failed, and stops everything.
func (s *site) end() {
	ctx := context.WithoutCancel(s.Context())
	if s.Failed() {
		s.keepLogs(ctx)
	}
	if err := s.Stop(); err != nil {
		s.Error(err)
	}
}

// run runs a command line of the documentation in the root of the source tree. kubectl and helm are our own.
func (s *site) run(line string) string {
	s.Helper()
	out, err := s.try(line)
	if err != nil {
		s.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

func (s *site) try(line string) (string, error) {
	args := strings.Fields(line)
	switch args[0] {
	case "kubectl":
		args[0] = s.kubectl
	case "helm":
		args[0] = s.helm
	}
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.AdminKubeconfig())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eventually looks until something holds, and returns when that was.
func (s *site) eventually(limit time.Duration, what string, look func() (ok bool, seen string)) time.Time {
	s.Helper()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); ; {
		ok, seen := look()
		if ok {
			s.Logf("%6.1f s %s", time.Since(s.began).Seconds(), what)
			return time.Now()
		}
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s; last seen: %s", limit, what, seen)
		}
		select {
		case <-tick.C:
		case <-s.Context().Done():
			s.Fatal(context.Cause(s.Context()))
		}
	}
}

// shippedTag is the version that the manifests name.
func shippedTag(t *testing.T, overlay string) string {
	t.Helper()
	manifests, err := controlplane.Read(t.Context(), overlay)
	check(t, err)
	var tags []string
	for _, m := range manifests {
		for line := range strings.Lines(string(m.Data)) {
			_, image, is := strings.Cut(line, "image: "+registry+"/")
			if _, tag, tagged := strings.Cut(strings.TrimSpace(image), ":"); is && tagged &&
				!slices.Contains(tags, tag) {
				tags = append(tags, tag)
			}
		}
	}
	if len(tags) != 1 {
		t.Fatalf("the manifests name the versions %v, want one", tags)
	}
	return tags[0]
}
