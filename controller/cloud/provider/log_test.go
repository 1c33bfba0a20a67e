package provider_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/provider"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// healthy is a provider whose servers all exist and run.
type healthy struct{}

func (healthy) InstanceExists(context.Context, *corev1.Node) (bool, error) { return true, nil }

func (healthy) InstanceShutdown(context.Context, *corev1.Node) (bool, error) { return false, nil }

func (healthy) InstanceMetadata(context.Context, *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	return &cloudprovider.InstanceMetadata{ProviderID: "phoenixnap://x", InstanceType: "s2.c1.medium"}, nil
}

// What the framework asks is logged at 5, and what it gets at 3.
func TestCallsOfTheFrameworkAreLogged(t *testing.T) {
	calls := []string{"InstanceExists", "InstanceShutdown", "InstanceMetadata"}
	for level, want := range map[int]struct{ calls, objects bool }{
		2: {}, 3: {objects: true}, 5: {calls: true, objects: true},
	} {
		ctx, logged := testlog.At(t, level)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		instances, _ := provider.New(healthy{}).InstancesV2()
		exists, err := instances.InstanceExists(ctx, node)
		if !exists || err != nil {
			t.Errorf("exists: %t, %v", exists, err)
		}
		shutdown, err := instances.InstanceShutdown(ctx, node)
		if shutdown || err != nil {
			t.Errorf("shut down: %t, %v", shutdown, err)
		}
		metadata, err := instances.InstanceMetadata(ctx, node)
		if err != nil || metadata.InstanceType != "s2.c1.medium" {
			t.Errorf("metadata: %v, %v", metadata, err)
		}
		text := logged()
		for _, call := range calls {
			if strings.Contains(text, call+" node") != want.calls {
				t.Errorf("-v=%d: %s is logged: %t\n%s", level, call, !want.calls, text)
			}
		}
		if strings.Contains(text, "s2.c1.medium") != want.objects {
			t.Errorf("-v=%d: the metadata is logged: %t\n%s", level, !want.objects, text)
		}
	}
}
