//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/e2e/node"
)

// upgrade follows docs/guides/upgrade.md, with the manifests of a newer version.
func (s *site) upgrade(address netip.Addr, probe int) {
	s.Helper()
	for _, server := range s.Servers {
		for _, archive := range onNode(s.images.newer) {
			out, err := s.Lab.ExecProgram(s.Context(), lab.Program{Host: server.Name, Timeout: limit,
				Args: []string{"chroot", node.Root, "/usr/bin/ctr", "--address=/run/containerd/containerd.sock",
					"--namespace=k8s.io", "images", "import", archive}})
			check(s.T, err)
			if out.Code != 0 {
				s.Fatalf("import %s on %s: %s", archive, server.Name, out.Stderr)
			}
		}
	}
	began := time.Now()
	s.run("kubectl apply -k " + s.newer())
	s.rolledOut()
	s.figure("upgrade_took", time.Since(began).Seconds(), "s")
	s.checkVersion()
	s.settled(began, probe)
	s.announced(began, address)
	service, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(s.Context(), "web", metav1.GetOptions{})
	check(s.T, err)
	if ingress := service.Status.LoadBalancer.Ingress; len(ingress) != 1 || ingress[0].IP != address.String() {
		s.Errorf("after the upgrade the Service has %v, want %s", ingress, address)
	}
	for _, n := range s.nodes() {
		if n.Labels[contract.NodeVLANReady] != "true" {
			s.Errorf("after the upgrade Node %s is not ready for the public network: %+v", n.Name,
				contract.FindNodeCondition(&n, contract.ConditionVLANReady))
		}
	}
}

// settled counts the requests that were lost since a moment, up to some that were answered at the end.
func (s *site) settled(since time.Time, probe int) {
	s.Helper()
	time.Sleep(5 * time.Second) // what an upgrade breaks may show a little later
	attempts, err := s.Lab.ProbeResults(s.Context(), probe)
	check(s.T, err)
	var asked, lost int
	var longest time.Duration
	for _, a := range attempts {
		if a.At.Before(since) {
			continue
		}
		asked++
		longest = max(longest, a.Took)
		if !a.OK {
			lost++
			s.Logf("lost %.1f s after the upgrade began: %s", a.At.Sub(since).Seconds(), a.Error)
		}
	}
	s.figure("upgrade_requests", float64(asked), "requests")
	s.figure("upgrade_lost_requests", float64(lost), "requests")
	s.figure("upgrade_longest_request", longest.Seconds(), "s")
	if asked == 0 || lost > 0 {
		s.Errorf("%d of %d requests were lost while controller and agents were replaced", lost, asked)
	}
}

// announced expects that one and the same machine has announced an address since a moment.
func (s *site) announced(since time.Time, address netip.Addr) {
	s.Helper()
	claims, err := s.Lab.ARPClaims(s.Context(), since)
	check(s.T, err)
	machines := map[string]bool{}
	for _, c := range claims {
		if c.IP == address {
			machines[c.MAC] = true
		}
	}
	if len(machines) != 1 {
		s.Errorf("while controller and agents were replaced %d machines announced %s: %v", len(machines), address,
			machines)
	}
}

// newer is a kustomization of a user who pins another version. kustomize takes bases only by relative paths.
func (s *site) newer() string {
	s.Helper()
	dir := s.TempDir()
	base, err := filepath.Rel(dir, filepath.Join(s.root, s.overlay))
	check(s.T, err)
	type object = map[string]any
	var images []object
	for _, i := range image.Images() {
		images = append(images, object{"name": registry + "/" + i.Name, "newTag": newerTag})
	}
	raw, err := json.Marshal(object{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{base}, "images": images})
	check(s.T, err)
	check(s.T, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), raw, 0o600))
	return dir
}

// checkVersion expects every pod of ours to run the newer image.
func (s *site) checkVersion() {
	s.Helper()
	for _, i := range image.Images() {
		pods, err := s.Kube.CoreV1().Pods(metav1.NamespaceSystem).List(s.Context(),
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + i.Name})
		check(s.T, err)
		running := 0
		for _, p := range pods.Items {
			if p.DeletionTimestamp != nil {
				continue
			}
			running++
			if got := p.Status.ContainerStatuses[0].Image; !strings.HasSuffix(got, i.Name+":"+newerTag) {
				s.Errorf("pod %s runs %s", p.Name, got)
			}
		}
		if running != len(s.Servers) {
			s.Errorf("%d pods of %s, want %d", running, i.Name, len(s.Servers))
		}
	}
}
