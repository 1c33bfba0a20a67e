package reconcile

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

//proves:known-bugs/late-validation
//proves:known-bugs/wrong-annotation-named
func TestIntent(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		address     string
		config      Config
		// problems are parts of the error, one for each problem; check looks at what was read otherwise.
		problems []string
		check    func(desired) bool
	}{
		{name: "nothing", check: func(i desired) bool { return !i.shared && i.size == "/29" && !i.namesAllocation() }},
		{
			name: "options", config: Config{Allocation: contract.AllocationShared, BlockSize: "/28"},
			check: func(i desired) bool { return i.shared && i.size == "/28" && !i.namesAllocation() && !i.sizeDemanded },
		},
		{
			name:   "annotations before options",
			config: Config{Allocation: contract.AllocationShared}, annotations: map[string]string{contract.ServiceIPAllocation: "dedicated", contract.ServiceIPBlockSize: "/30", contract.ServiceIPRetain: "true", contract.ServiceIPReplace: "true"},
			check: func(i desired) bool {
				return !i.shared && i.size == "/30" && i.retain && i.replace && i.namesAllocation() && i.sizeDemanded
			},
		},
		{
			name: "brought block in a cluster that shares", config: Config{Allocation: contract.AllocationShared},
			annotations: map[string]string{contract.ServiceIPBlockID: "b1", contract.ServiceRequestedIP: "203.0.113.10"},
			check: func(i desired) bool {
				return !i.shared && i.blockID == "b1" && i.requested == netip.MustParseAddr("203.0.113.10")
			},
		},
		{name: "address in the spec", address: "203.0.113.10", check: func(i desired) bool { return i.requestedSource == "spec.loadBalancerIP" && i.requested.IsValid() }},
		{
			name: "our own address in the spec", address: "203.0.113.10", annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.10"},
			check: func(i desired) bool { return !i.requested.IsValid() },
		},
		{
			name: "another location annotation", config: Config{LocationAnnotation: "phoenixnap.com/ip-where"},
			annotations: map[string]string{"phoenixnap.com/ip-where": "ash"}, check: func(i desired) bool { return i.location == "ASH" },
		},
		{
			name: "the usual location annotation where another is configured", config: Config{LocationAnnotation: "example.com/site"},
			annotations: map[string]string{contract.ServiceIPLocation: "ash"},
			problems:    []string{contract.ServiceIPLocation + ` has no meaning here: the option annotationIPLocation names example.com/site instead`},
		},
		{
			name: "everything wrong at once", address: "nowhere",
			annotations: map[string]string{
				contract.ServiceIPAllocation: "mine", contract.ServiceIPBlockSize: "29", contract.ServiceIPRetain: "yes",
				contract.ServiceIPReplace: "1", contract.ServiceRequestedIP: "2001:db8::1", "phoenixnap.com/ip-sise": "x", "phoenixnap.com/requested-ips": "y",
			},
			problems: []string{
				contract.ServiceIPAllocation + ` is "mine"`, contract.ServiceIPBlockSize + ` is "29"`, contract.ServiceIPRetain, contract.ServiceIPReplace,
				contract.ServiceRequestedIP, "ip-sise is not known", "requested-ips is not known", "spec.loadBalancerIP",
			},
		},
		{
			name: "block and what it excludes",
			annotations: map[string]string{
				contract.ServiceIPBlockID: "b1", contract.ServiceIPBlockSize: "/29", contract.ServiceIPAllocation: "shared", contract.ServiceIPRetain: "true", contract.ServiceIPLocation: "ASH",
			},
			problems: []string{contract.ServiceIPBlockSize, contract.ServiceIPAllocation, contract.ServiceIPRetain, contract.ServiceIPLocation},
		},
		{
			name: "shared and retained", annotations: map[string]string{contract.ServiceIPAllocation: "shared", contract.ServiceIPRetain: "true"},
			problems: []string{"needs a block of the Service's own"},
		},
		{
			name: "shared of another size", annotations: map[string]string{contract.ServiceIPAllocation: "shared", contract.ServiceIPBlockSize: "/28"},
			problems: []string{"no meaning for a shared block"},
		},
		{
			name: "two addresses", address: "203.0.113.10", annotations: map[string]string{contract.ServiceRequestedIP: "203.0.113.11"},
			problems: []string{"clear one of them"},
		},
		{name: "annotations of others", annotations: map[string]string{"phoenixnap.com/team": "a", "example.com/ip-x": "b"}, check: func(desired) bool { return true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}, Spec: corev1.ServiceSpec{LoadBalancerIP: test.address}}
			got, err := readDesired(service, New(test.config).config.options())
			if test.problems == nil {
				if err != nil || !test.check(got) {
					t.Errorf("intent %+v, %v", got, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("intent %+v without an error", got)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.problems) {
				t.Errorf("%d problems, want %d: %v", len(lines), len(test.problems), err)
			}
			for _, part := range test.problems {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}

func TestAnnouncement(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	reporting := func(name, raw string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{contract.NodeReportedAddresses: raw}}}
	}
	says := func(state string) string {
		return `{"203.0.113.10":{"state":"` + state + `","since":"2026-03-01T12:00:00Z"}}`
	}
	for _, test := range []struct {
		name   string
		nodes  []*corev1.Node
		status metav1.ConditionStatus
		reason string
		silent bool
	}{
		{"nobody reports", nil, "Unknown", "NotReported", false},
		{"about another address", []*corev1.Node{reporting("a", strings.ReplaceAll(says("Answered"), ".10", ".11"))}, "Unknown", "NotReported", false},
		{"garbage", []*corev1.Node{reporting("a", "{"), reporting("b", says("Answered"))}, "True", "Answered", false},
		{"one of two hears it", []*corev1.Node{reporting("a", says("Silent")), reporting("b", says("Answered"))}, "True", "Answered", false},
		{"nobody hears it", []*corev1.Node{reporting("a", says("Silent")), reporting("b", says("Silent"))}, "False", "Silent", true},
		{"two answer", []*corev1.Node{reporting("a", says("Answered")), reporting("b", says("Duplicate"))}, "False", "Duplicate", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if c := announcement(test.nodes, address, nil); c.Status != test.status || c.Reason != test.reason || c.Message == "" {
				t.Errorf("condition %+v", c)
			}
			if got := silent(test.nodes, address); got != test.silent {
				t.Errorf("silent is %t", got)
			}
		})
	}
}
