//go:build linux && e2e

package e2e

import (
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
)

// mark is the annotation by which pods of the second revision are known.
const mark = "e2e-revision"

// chart installs everything again with Helm, changes a value, and removes it. The Secret is that of the first
// installation.
func (s *site) chart() {
	s.Helper()
	install := "helm upgrade --install phoenixnap " + s.chartPath() + " --namespace kube-system --set announcer=" +
		s.announcer
	if s.announcer == contract.AnnouncerKubeVIP {
		install += " --set kubeVIP.enabled=true --set kubeVIP.interface=" + cluster.PublicInterface
	}
	s.run(install)
	s.rolledOut()
	s.checkImages(shipped.byDigest)
	if s.announcer == contract.AnnouncerKubeVIP {
		s.run("kubectl -n kube-system rollout status daemonset/kube-vip --timeout=10m")
	}
	s.marked("")
	s.run(install + " --set controller.podAnnotations." + mark + "=two --set agent.podAnnotations." + mark + "=two")
	s.rolledOut()
	s.marked("two")
	s.allowed()
	s.deleteDefinitions() // the chart leaves the definition
	s.run("helm uninstall phoenixnap --namespace kube-system --wait --timeout 10m")
	s.gone()
}

// chartPath is the chart that is installed: that of the release, if one is tested, or that of the source tree.
func (s *site) chartPath() string {
	s.Helper()
	if s.images.release == "" {
		return deploy.Chart
	}
	packed, err := filepath.Glob(filepath.Join(s.images.release, "chart", "*.tgz"))
	check(s.T, err)
	if len(packed) != 1 {
		s.Fatalf("the release has the charts %q, want one", packed)
	}
	return packed[0]
}

// marked expects an annotation on every pod of controller and agents.
func (s *site) marked(want string) {
	s.Helper()
	pods, err := s.Kube.CoreV1().Pods(metav1.NamespaceSystem).List(s.Context(), metav1.ListOptions{})
	check(s.T, err)
	found := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil || !strings.HasPrefix(p.Name, "phoenixnap-") {
			continue
		}
		found++
		if got := p.Annotations[mark]; got != want {
			s.Errorf("pod %s of the chart has the annotation %q, want %q", p.Name, got, want)
		}
	}
	if want := 2 * len(s.on); found != want {
		s.Errorf("the chart has %d pods, want %d", found, want)
	}
}
