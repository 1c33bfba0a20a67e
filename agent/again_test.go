//go:build linux

package main

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestANodeRegisteredAgainIsWritten: who deletes a Node and has its kubelet register it again finds everything on it
// that the agent had written, and conditions that someone removed or overwrote come back as well.
func TestANodeRegisteredAgainIsWritten(t *testing.T) {
	c := newCluster(t)
	c.publish(t)
	defer c.startAgent(t)()
	complete := func(node *corev1.Node) bool {
		vlan := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		healthy := contract.FindNodeCondition(node, contract.ConditionAnnouncementHealthy)
		return vlan != nil && vlan.Status == corev1.ConditionFalse && healthy != nil &&
			node.Annotations[contract.NodeReportedIdentity] != ""
	}
	c.await(t, "all that the agent writes", complete)

	must(t, c.admin.CoreV1().Nodes().Delete(t.Context(), c.nodeName, metav1.DeleteOptions{}))
	time.Sleep(time.Second) // time to fail at a Node that is gone
	_, err := c.admin.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.nodeName}}, metav1.CreateOptions{})
	must(t, err)
	c.publish(t)
	begin := time.Now()
	c.await(t, "the same on the next Node of the name", complete)
	t.Logf("figure node_again_to_condition %.2f s", time.Since(begin).Seconds())

	node := c.node(t)
	node.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue,
		Reason: "Forged"}}
	_, err = c.admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
	c.await(t, "the agent's own word", complete)
}

// TestAnAgentThatStartsAgainChangesNothing: what its first samples lack is no news. With every update of the agents,
// VLANReady of each Node would be Unknown for a moment.
func TestAnAgentThatStartsAgainChangesNothing(t *testing.T) {
	c := newCluster(t)
	c.publish(t)
	end := c.startAgent(t)
	c.await(t, "a verdict", func(node *corev1.Node) bool {
		vlan := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		return vlan != nil && vlan.Status == corev1.ConditionFalse &&
			node.Annotations[contract.NodeReportedIdentity] != ""
	})
	end()
	// The next agent writes the identity with its first sample.
	_, err := c.admin.CoreV1().Nodes().Patch(t.Context(), c.nodeName, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+contract.NodeReportedIdentity+`":null}}}`), metav1.PatchOptions{})
	must(t, err)
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	versions, err := c.admin.CoreV1().Nodes().Watch(within, metav1.ListOptions{
		FieldSelector: "metadata.name=" + c.nodeName, ResourceVersion: c.node(t).ResourceVersion})
	must(t, err)
	defer c.startAgent(t)()
	for version := range versions.ResultChan() {
		node, ok := version.Object.(*corev1.Node)
		if !ok {
			t.Fatalf("the watch ended with %v", version.Object)
		}
		vlan := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		if vlan == nil || vlan.Status != corev1.ConditionFalse {
			t.Errorf("VLANReady became %v", vlan)
		}
		if node.Annotations[contract.NodeReportedIdentity] != "" {
			return
		}
	}
	t.Error("not within 20 s: the identity that the next agent reports")
}
