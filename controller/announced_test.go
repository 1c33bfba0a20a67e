package main

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// checkAnnounced: the Service says which Node announces its address as soon as that Node's agent reports it, and that
// it is another when the address moves.
func (s *scene) checkAnnounced(name string, address netip.Addr) {
	s.Helper()
	for i, node := range []string{"node-1", "node-2"} {
		report := fmt.Sprintf(`{%q:{"state":"Answered","mac":"02:00:00:00:00:0%d","held":true,"since":"2026-03-01T12:00:0%dZ"}}`, address, i, i)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, contract.NodeReportedAddresses, report)
		_, err := s.client.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}, "status")
		s.ok(err)
		s.until(patience, func() error {
			condition := meta.FindStatusCondition(s.get(s.space, name).Status.Conditions,
				contract.ServiceConditionAnnounced)
			if condition == nil || condition.Status != metav1.ConditionTrue ||
				!strings.HasPrefix(condition.Message, "Node "+node+" announces the address since ") {
				return fmt.Errorf("%s says %+v, want that %s announces it", name, condition, node)
			}
			return nil
		})
	}
}
