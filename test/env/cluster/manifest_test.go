//go:build linux

package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const shipped = "../../../deploy/kube-vip/kube-vip.yaml"

func TestShippedKubeVIPRunsOnlyByTheLabel(t *testing.T) {
	w, err := loadWorkload(shipped)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"ready":        {map[string]string{contract.NodeVLANReady: "true"}, true},
		"not ready":    {nil, false},
		"another word": {map[string]string{contract.NodeVLANReady: "false"}, false},
	} {
		got, err := w.mayRunOn(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels}})
		if err != nil || got != tc.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, tc.want)
		}
	}
}

func TestEnvironmentOfTheShippedKubeVIP(t *testing.T) {
	w, err := loadWorkload(shipped)
	if err != nil {
		t.Fatal(err)
	}
	env, err := w.environment("srv-a", map[string]string{"vip_interface": PublicInterface, "HOME": "/lab/home"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"vip_nodename=srv-a", "vip_interface=bond0.56", "HOME=/lab/home", "vip_subnet=32",
		"vip_leaseduration=5",
		"lb_class_name=" + contract.LoadBalancerClass, "lb_class_legacy_handling=true"} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is missing in %q", want, env)
		}
	}
	w.container.Env = append(w.container.Env, corev1.EnvVar{Name: "secret", ValueFrom: &corev1.EnvVarSource{}})
	if _, err := w.environment("srv-a", nil); err == nil {
		t.Error("a variable that cannot be resolved is passed over")
	}
	if env, err := w.environment("srv-a", map[string]string{"secret": "given"}); err != nil ||
		!slices.Contains(env, "secret=given") {
		t.Errorf("a variable that cannot be resolved, but is given: %q, %v", env, err)
	}
}

func TestLoadWorkloadNeedsADaemonSet(t *testing.T) {
	for _, path := range []string{"../../../deploy/base/agent.yaml", "missing.yaml"} {
		if _, err := loadWorkload(path); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
