package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// TestAbsurdServicesAreAnsweredBriefly: the API server takes 256 kB of annotations. Whatever is in them, conditions and
// errors stay short and name what is wrong, and nothing of them becomes part of a request to phoenixNAP.
func TestAbsurdServicesAreAnsweredBriefly(t *testing.T) {
	const size = 200_000
	long := strings.Repeat("x", size)
	many := func(s *corev1.Service) {
		s.Annotations = map[string]string{}
		for i := range 4000 {
			s.Annotations[fmt.Sprintf("%sip-%04d-%s", contract.Prefix, i, long[:40])] = "y"
		}
	}
	longest := 0
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		reason string
		says   string
	}{
		"unknown annotations": {many, "AnnotationsRefused", "and 3995 more"},
		"IPBlock":             {naming(long), "AnnotationsRefused", "must be the name of an IPBlock"},
		"a path as an IPBlock": {naming("../../bmc/v1/servers"), "AnnotationsRefused",
			"must be the name of an IPBlock"},
		"location": {annotated(contract.ServiceIPLocation, long), "AnnotationsRefused",
			"must be the code of a location"},
		"size":      {annotated(contract.ServiceIPBlockSize, long), "AnnotationsRefused", "must be one of"},
		"kind":      {annotated(contract.ServiceIPAllocation, long), "AnnotationsRefused", "must be one of"},
		"retain":    {annotated(contract.ServiceIPRetain, long), "AnnotationsRefused", `must be "true" or "false"`},
		"address":   {annotated(contract.ServiceRequestedIP, long), "AnnotationsRefused", "is no IPv4 address"},
		"zone":      {annotated(contract.ServiceRequestedIP, "fe80::1%"+long), "AnnotationsRefused", "is no IPv4 address"},
		"the spec":  {func(s *corev1.Service) { s.Spec.LoadBalancerIP = long }, "AnnotationsRefused", "is no IPv4 address"},
		"all names": {annotated(contract.ServiceIPRetain, long, contract.ServiceIPReplace, long), "AnnotationsRefused", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, configured(func(c *reconcile.Config) { c.Location = "" }))
			w.service("web", test.change)
			err := w.refused("web", time.Minute)
			c := w.condition("web")
			longest = max(longest, len(c.Message), len(err.Error()))
			if c.Reason != test.reason || !strings.Contains(c.Message, test.says) {
				t.Errorf("condition is %s %q, want %s with %q", c.Reason, c.Message, test.reason, test.says)
			}
			for len(w.events.Events) > 0 {
				longest = max(longest, len(<-w.events.Events)-len("Warning IPBlockRefused "))
			}
			for _, e := range w.sim.Log(0) {
				if strings.Contains(e.Path, "xxxx") || strings.Contains(e.Path, "..") {
					t.Errorf("phoenixNAP was asked %s %.100s", e.Method, e.Path)
				}
			}
			w.delete("web")
			w.settle("web")
		})
	}
	t.Logf("figure absurd_service_message %d bytes", longest)
	if longest > text.MessageLimit {
		t.Errorf("a message has %d bytes, want at most %d", longest, text.MessageLimit)
	}
}
