//go:build linux

package main

import (
	"context"
	"net/netip"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/examiner"
)

// TestExaminerRights: the shipped ServiceAccount may read what says whether another Node is off.
func TestExaminerRights(t *testing.T) {
	c := newCluster(t)
	_, err := c.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.nodeName}}, metav1.CreateOptions{})
	must(t, err)
	x := &examiner.Examiner{Client: c.agent, Claimed: func(context.Context, []netip.Addr) (map[netip.Addr]bool, error) {
		return nil, nil
	}}
	got := x.Examine(t.Context(), map[string][]netip.Addr{c.nodeName: nil, "deleted": nil})
	if got[c.nodeName].Off || got[c.nodeName].Renewal == "" || !got["deleted"].Off {
		t.Errorf("%+v, want the Lease of %s, and that the other Node was deleted", got, c.nodeName)
	}
}
