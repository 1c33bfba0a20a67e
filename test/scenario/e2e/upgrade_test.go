//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
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
	s.run("kubectl apply -k deploy/crds")
	s.run("kubectl apply -k " + s.newer())
	s.rolledOut()
	s.figure("upgrade_took", time.Since(began).Seconds(), "s")
	s.checkVersion()
	s.settled("upgrade", began, probe)
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
func (s *site) settled(change string, since time.Time, probe int) {
	s.Helper()
	time.Sleep(5 * time.Second) // what a change breaks may show a little later
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
			s.Logf("lost %.1f s after the %s began: %s", a.At.Sub(since).Seconds(), change, a.Error)
		}
	}
	s.figure(change+"_requests", float64(asked), "requests")
	s.figure(change+"_lost_requests", float64(lost), "requests")
	s.figure(change+"_longest_request", longest.Seconds(), "s")
	if asked == 0 || lost > 0 {
		s.Errorf("%d of %d requests were lost during the %s", lost, asked, change)
	}
}

// announced expects that one and the same machine has announced an address since a moment.
func (s *site) announced(since time.Time, address netip.Addr) {
	s.Helper()
	claims, err := s.Lab.ARPClaims(s.Context(), since)
	check(s.T, err)
	var last string
	var announcers []string
	for _, c := range claims {
		if c.IP == address && c.MAC != last {
			announcers = append(announcers, fmt.Sprintf("%s after %.1f s", c.MAC, c.At.Sub(since).Seconds()))
			last = c.MAC
		}
	}
	if len(announcers) != 1 {
		s.Errorf("while controller and agents were replaced, %s was announced by %q, want one machine", address,
			announcers)
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
		for _, p := range s.podsOf(i) {
			if got := p.Status.ContainerStatuses[0].Image; !strings.HasSuffix(got, i.Name+":"+newerTag) {
				s.Errorf("pod %s runs %s", p.Name, got)
			}
		}
	}
}

// podsOf are the pods that are not being deleted, one for each server.
func (s *site) podsOf(i image.Image) []corev1.Pod {
	s.Helper()
	pods, err := s.Kube.CoreV1().Pods(metav1.NamespaceSystem).List(s.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + i.Name})
	check(s.T, err)
	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(running) != len(s.on) {
		s.Errorf("%d pods of %s, want %d", len(running), i.Name, len(s.on))
	}
	return running
}

// checkImages expects every node to hold the images under the digests of the archives that it was given. Of a release
// the pods name these digests, so nothing else can run: with the tag in manifests, without it in the chart.
func (s *site) checkImages(named func(shipped) string) {
	s.Helper()
	for _, i := range image.Images() {
		want := s.images.shipped[i.Name]
		for _, server := range s.on {
			if got := s.digestOn(server, want.reference); got != want.digest {
				s.Errorf("%s on %s is %q, want %s", want.reference, server.Name, got, want.digest)
			}
		}
		if s.images.release == "" {
			continue
		}
		for _, p := range s.podsOf(i) {
			if got := p.Spec.Containers[0].Image; got != named(want) {
				s.Errorf("pod %s names the image %s, want %s", p.Name, got, named(want))
			}
		}
	}
}

// digestOn is the digest by which containerd on a server knows an image; empty if it does not.
func (s *site) digestOn(server cluster.Server, reference string) string {
	s.Helper()
	out, err := s.Lab.ExecProgram(s.Context(), lab.Program{Host: server.Name, Timeout: limit,
		Args: []string{"chroot", node.Root, "/usr/bin/ctr", "--address=/run/containerd/containerd.sock",
			"--namespace=k8s.io", "images", "list"}})
	check(s.T, err)
	// REF TYPE DIGEST SIZE PLATFORMS LABELS
	for line := range strings.Lines(string(out.Stdout)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == reference {
			return fields[2]
		}
	}
	return ""
}
