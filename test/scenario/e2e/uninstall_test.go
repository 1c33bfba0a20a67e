//go:build linux && e2e

package e2e

import (
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
)

// uninstall follows docs/guides/uninstall.md.
func (s *site) uninstall(probe int) {
	s.Helper()
	began := time.Now()
	s.run("kubectl delete service web")
	state, err := s.Sim.State(s.Context())
	check(s.T, err)
	if len(state.Blocks) != 1 || state.Blocks[0].ID != cluster.NodeBlockID {
		s.Errorf("after its Service is gone the account holds %+v", state.Blocks)
	}
	s.figure("service_deleted_after", time.Since(began).Seconds(), "s")
	s.figure("blocks_left_in_account", float64(len(state.Blocks)-1), "blocks")
	_, err = s.Lab.StopProbe(s.Context(), probe)
	check(s.T, err)
	s.deleteDefinitions()
	if s.announcer == contract.AnnouncerKubeVIP {
		s.run("kubectl delete -f deploy/kube-vip/kube-vip.yaml")
	}
	s.run("kubectl delete -k " + s.overlay)
	s.gone()
	_, err = s.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(s.Context(), "web", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		s.Errorf("the Service is still there: %v", err)
	}
	s.leftovers()
	s.figure("install_to_uninstall_took", time.Since(s.began).Seconds(), "s")
}

// deleteDefinitions deletes the kinds and what guards them, as the guide says.
func (s *site) deleteDefinitions() {
	s.Helper()
	const allowed = ".networking.phoenixnap.com phoenixnap.com/allow-deletion=true --overwrite"
	for _, kind := range []string{"ipblocks", "publicnetworks"} {
		s.run("kubectl annotate crd " + kind + allowed)
	}
	s.run("kubectl delete -k deploy/crds")
}

// gone waits until no pod of ours is left.
func (s *site) gone() {
	s.Helper()
	s.eventually(limit, "no pod of ours is left", func() (bool, string) {
		pods, err := s.Kube.CoreV1().Pods(metav1.NamespaceSystem).List(s.Context(), metav1.ListOptions{})
		check(s.T, err)
		return len(pods.Items) == 0, s.pods()
	})
}

// leftovers logs what an uninstallation leaves, and expects that nothing of it blocks anything.
func (s *site) leftovers() {
	s.Helper()
	var marks []string
	for _, n := range s.nodes() {
		for name := range n.Labels {
			marks = append(marks, n.Name+" label "+name)
		}
		for name := range n.Annotations {
			marks = append(marks, n.Name+" annotation "+name)
		}
		for _, c := range n.Status.Conditions {
			marks = append(marks, n.Name+" condition "+string(c.Type))
		}
		if len(n.Finalizers) > 0 {
			s.Errorf("Node %s has the finalizers %v, which nothing removes any more", n.Name, n.Finalizers)
		}
	}
	leases, err := s.Kube.CoordinationV1().Leases(metav1.NamespaceAll).List(s.Context(), metav1.ListOptions{})
	check(s.T, err)
	for _, l := range leases.Items {
		marks = append(marks, "Lease "+l.Namespace+"/"+l.Name)
	}
	maps, err := s.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(s.Context(), metav1.ListOptions{})
	check(s.T, err)
	for _, m := range maps.Items {
		marks = append(marks, "ConfigMap "+m.Namespace+"/"+m.Name)
	}
	marks = slices.DeleteFunc(marks, func(mark string) bool {
		return !strings.Contains(mark, "phoenixnap") && !strings.Contains(mark, "kubevip")
	})
	slices.Sort(marks)
	s.Logf("left, and blocking nothing:\n\t%s", strings.Join(marks, "\n\t"))
	s.figure("marks_left", float64(len(marks)), "marks")
}

// undisturbed looks for what went wrong without anybody noticing.
func (s *site) undisturbed() {
	s.Helper()
	violations, err := s.Sim.Violations(s.Context())
	check(s.T, err)
	for _, v := range violations {
		s.Errorf("rule of the account broken: %s", v)
	}
	if s.Failed() {
		return
	}
	for _, i := range s.images.shipped {
		s.Logf("tested %s@%s", i.reference, i.digest)
	}
}
