//go:build linux && e2e

package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/e2e/node"
)

// judged are the tests of Kubernetes that judge a provider of load balancers: the 17 with [Feature:LoadBalancer], and
// those of Services that make one of type LoadBalancer.
const judged = `\[sig-network\] (LoadBalancers|Services.*(only terminating endpoints|service status lifecycle` +
	`|different protocol for internal traffic|HealthCheckNodePort correctly))`

// focusVariable is the environment variable that replaces judged by another regular expression.
const focusVariable = "PNAP_K8S_FOCUS"

const (
	// judgeLimit is what all tests of Kubernetes may take.
	judgeLimit = 100 * time.Minute
	// judgeMemoryMiB is the memory of the machine of all servers, with the pods of the tests.
	judgeMemoryMiB = 5120
	// judgeReport is where the tests of Kubernetes write their report, on the client.
	judgeReport = "/run/report.json"
)

// clientPrivate is the address with which the client, on which the tests run, reaches the API server.
var clientPrivate = netip.MustParsePrefix("10.0.0.5/24")

// TestKubernetes has Kubernetes' own end-to-end tests, which know nothing of this project, judge what users install,
// with each announcer.
func TestKubernetes(t *testing.T) {
	var sum verdict
	t.Logf("figure k8s_e2e_chosen %d tests", chosen(t))
	for _, announcer := range []string{contract.AnnouncerAgent, contract.AnnouncerKubeVIP} {
		k := kind{announcer: announcer, overlay: "deploy/overlays/kubeadm", judged: true}
		if announcer == contract.AnnouncerAgent {
			k.overlay += "-agent"
		}
		t.Run(announcer, func(t *testing.T) {
			s := newSite(t, k)
			s.registered()
			s.install()
			s.admitPods()
			sum = sum.add(s.judge())
		})
	}
	t.Logf("figure k8s_e2e_passed %d tests", sum.passed)
	t.Logf("figure k8s_e2e_failed %d tests", sum.failed)
	t.Logf("figure k8s_e2e_refused_by_pods %d tests", sum.refused)
	t.Logf("figure k8s_e2e_one_pod_answered %d tests", sum.onePod)
	t.Logf("figure k8s_e2e_skipped %d tests", sum.skipped)
}

// focus is which tests are run, a regular expression.
func focus() string { return cmp.Or(os.Getenv(focusVariable), judged) }

// chosen is how many tests of Kubernetes the focus chooses: at least one, and if nothing else is asked for, no fewer
// than when judged was written, so that none is lost if it gets another name.
func chosen(t *testing.T) int {
	t.Helper()
	if _, err := regexp.Compile(focus()); err != nil {
		t.Fatalf("FOCUS %q is no regular expression: %v", focus(), err)
	}
	program, err := tools.Binary(t.Context(), tools.EndToEndTests)
	check(t, err)
	path := filepath.Join(t.TempDir(), "report.json")
	out, err := exec.CommandContext(t.Context(), program, "-ginkgo.dry-run", "-provider=skeleton",
		"-ginkgo.focus="+focus(), "-ginkgo.json-report="+path).CombinedOutput()
	if err != nil {
		t.Fatalf("list the tests of Kubernetes: %v\n%.2000s", err, out)
	}
	raw, err := os.ReadFile(path)
	check(t, err)
	specs, err := readReport(raw)
	check(t, err)
	if len(specs) == 0 || focus() == judged && len(specs) < 21 {
		t.Fatalf("FOCUS %q chooses %d tests; give a regular expression that chooses some, such as 'LoadBalancers'",
			focus(), len(specs))
	}
	return len(specs)
}

// admitPods has both nodes run ordinary pods and carry the traffic of load balancers, as on a small cluster whose
// control plane does both, with the second one an ordinary node, and installs kubeadm's DNS.
func (s *site) admitPods() {
	s.Helper()
	const controlPlane = "node-role.kubernetes.io/control-plane"
	check(s.T, s.exec(s.Servers[0], node.KubeadmInit("addon", "coredns")...))
	s.run("kubectl taint node --all " + controlPlane + "-")
	s.run("kubectl label node " + s.Servers[1].Name + " " + controlPlane + "-")
	s.run("kubectl label node --all " + corev1.LabelNodeExcludeBalancers + "-")
	s.run("kubectl -n kube-system rollout status deployment/coredns --timeout=10m")
}

// judge runs the tests of Kubernetes on the client beyond the gateway.
func (s *site) judge() verdict {
	s.Helper()
	id, err := s.Lab.StartProcess(s.Context(), lab.Program{Host: lab.Client, Name: tools.EndToEndTests, Args: []string{
		lab.Path(tools.EndToEndTests), "-kubeconfig=" + lab.Path(cluster.AdminConfig),
		"-kubectl-path=" + lab.Path("kubectl"), "-provider=skeleton", fmt.Sprint("-num-nodes=", len(s.Servers)),
		"-disable-log-dump", "-ginkgo.focus=" + focus(), "-ginkgo.no-color",
		"-ginkgo.timeout=" + judgeLimit.String(), "-ginkgo.json-report=" + judgeReport,
	}})
	check(s.T, err)
	process, err := s.Lab.Await(s.Context(), id, judgeLimit+limit)
	check(s.T, err)
	log, err := s.Lab.Log(s.Context(), tools.EndToEndTests)
	check(s.T, err)
	path := filepath.Join(s.ArtifactDir(), tools.EndToEndTests+".log")
	check(s.T, os.WriteFile(path, log, 0o600))
	raw, err := s.Lab.ReadFile(s.Context(), lab.Client, judgeReport)
	if err != nil {
		s.Fatalf("%s ended with %d and without a report (%v), its log is %s", tools.EndToEndTests, process.Code, err,
			path)
	}
	specs, err := readReport(raw)
	check(s.T, err)
	v := tally(specs)
	for _, spec := range specs {
		spec.log(s.T)
	}
	if process.Code != 0 && v.failed+v.refused+v.onePod == 0 || v.passed == 0 {
		s.Errorf("%s ended with %d: %+v; its log is %s", tools.EndToEndTests, process.Code, v, path)
	}
	return v
}
