package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// withDefaults sets what the command line sets by default.
func withDefaults(o Options) Options {
	o.LocationAnnotation = cmp.Or(o.LocationAnnotation, contract.ServiceIPLocation)
	o.Allocation = cmp.Or(o.Allocation, contract.AllocationDedicated)
	o.BlockSize = cmp.Or(o.BlockSize, "/29")
	return o
}

// TestFewOfManyUnknownAnnotationsAreNamed: 250 kB of annotations that look like ours and mean nothing.
func TestFewOfManyUnknownAnnotationsAreNamed(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for i := range 5000 {
		service.Annotations[fmt.Sprintf("%sip-%04d-%s", contract.Prefix, i, strings.Repeat("x", 50))] = ""
	}
	_, err := ReadDesired(service, withDefaults(Options{}))
	if err == nil || strings.Count(err.Error(), "xxx…") != 5 || len(err.Error()) > text.MessageLimit {
		t.Fatalf("said %v", err)
	}
	for _, part := range []string{"phoenixnap.com/ip-0000-xxxx", "phoenixnap.com/ip-0004-xxxx",
		"… and 4995 more are not known; correct or remove", "known annotations are " + contract.ServiceIPAllocation} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}

//proves:known-bugs/late-validation
//proves:known-bugs/wrong-annotation-named
func TestDesired(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		address     string
		options     Options
		// problems are parts of the error, one for each problem; check looks at what was read otherwise.
		problems []string
		check    func(Desired) bool
	}{
		{name: "nothing", check: func(i Desired) bool { return !i.Shared && i.Size == 29 && !i.namesAllocation() }},
		{
			name: "options", options: Options{Allocation: contract.AllocationShared, BlockSize: "/28"},
			check: func(i Desired) bool {
				return i.Shared && i.Size == 28 && !i.namesAllocation() &&
					!i.SizeDemanded
			},
		},
		{
			name:    "annotations before options",
			options: Options{Allocation: contract.AllocationShared},
			annotations: map[string]string{contract.ServiceIPAllocation: "dedicated",
				contract.ServiceIPBlockSize: "/30", contract.ServiceIPRetain: "true",
				contract.ServiceIPReplace: "true"},
			check: func(i Desired) bool {
				return !i.Shared && i.Size == 30 && i.Retain && i.Replace && i.namesAllocation() && i.SizeDemanded
			},
		},
		{
			name: "brought block in a cluster that shares", options: Options{Allocation: contract.AllocationShared},
			annotations: map[string]string{contract.ServiceIPBlock: " mail.shop ",
				contract.ServiceRequestedIP: "203.0.113.10"},
			check: func(i Desired) bool {
				return !i.Shared && i.IPBlock == "mail.shop" && i.Requested == netip.MustParseAddr("203.0.113.10")
			},
		},
		{name: "address in the spec", address: "203.0.113.10",
			check: func(i Desired) bool { return i.RequestedSource == "spec.loadBalancerIP" && i.Requested.IsValid() }},
		{
			name: "our own address in the spec", address: "203.0.113.10",
			annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.10"},
			check:       func(i Desired) bool { return !i.Requested.IsValid() },
		},
		{
			name: "another location annotation", options: Options{LocationAnnotation: "phoenixnap.com/ip-where"},
			annotations: map[string]string{"phoenixnap.com/ip-where": "ash"},
			check:       func(i Desired) bool { return i.Location == "ASH" },
		},
		{
			name:        "the usual location annotation where another is configured",
			options:     Options{LocationAnnotation: "example.com/site"},
			annotations: map[string]string{contract.ServiceIPLocation: "ash"},
			problems: []string{contract.ServiceIPLocation +
				` has no meaning here: the option annotationIPLocation names example.com/site instead`},
		},
		{
			name: "everything wrong at once", address: "nowhere",
			annotations: map[string]string{
				contract.ServiceIPAllocation: "mine", contract.ServiceIPBlockSize: "29",
				contract.ServiceIPRetain:  "yes",
				contract.ServiceIPReplace: "1", contract.ServiceRequestedIP: "2001:db8::1",
				"phoenixnap.com/ip-sise": "x", "phoenixnap.com/requested-ips": "y",
			},
			problems: []string{
				contract.ServiceIPAllocation + ` is "mine"`, contract.ServiceIPBlockSize + ` is "29"`,
				contract.ServiceIPRetain, contract.ServiceIPReplace,
				contract.ServiceRequestedIP,
				"phoenixnap.com/ip-sise, phoenixnap.com/requested-ips are not known; correct or remove",
				"spec.loadBalancerIP",
			},
		},
		{
			name: "codes that are none", annotations: map[string]string{
				contract.ServiceIPLocation: "ASH; PHX", contract.ServiceIPBlock: "../" + strings.Repeat("x", 1000)},
			problems: []string{`of the Service is "ASH; PHX"; it must be the code of a location, such as ASH`,
				contract.ServiceIPBlock + ` is "../xxx`, "exclude each other"},
		},
		{
			name:        "a longer name than an IPBlock can have",
			annotations: map[string]string{contract.ServiceIPBlock: strings.Repeat("x", 64)},
			problems:    []string{contract.ServiceIPBlock + ` is "xxx`},
		},
		{
			name: "no name of an IPBlock", annotations: map[string]string{contract.ServiceIPBlock: "Mail_Shop"},
			problems: []string{contract.ServiceIPBlock + ` is "Mail_Shop"; it must be the name of an IPBlock, such as mail`},
		},
		{
			name:        "an IPBlock with the longest name",
			annotations: map[string]string{contract.ServiceIPBlock: strings.Repeat("6", 63)},
			check:       func(i Desired) bool { return i.IPBlock == strings.Repeat("6", 63) },
		},
		{
			name: "block and what it excludes",
			annotations: map[string]string{
				contract.ServiceIPBlock: "mine", contract.ServiceIPBlockSize: "/29",
				contract.ServiceIPAllocation: "shared", contract.ServiceIPRetain: "true",
				contract.ServiceIPLocation: "ASH",
			},
			problems: []string{contract.ServiceIPBlockSize, contract.ServiceIPAllocation, contract.ServiceIPRetain,
				contract.ServiceIPLocation},
		},
		{
			name: "shared and retained", annotations: map[string]string{contract.ServiceIPAllocation: "shared",
				contract.ServiceIPRetain: "true"},
			problems: []string{"needs a block of the Service's own"},
		},
		{
			name: "shared of another size", annotations: map[string]string{contract.ServiceIPAllocation: "shared",
				contract.ServiceIPBlockSize: "/28"},
			problems: []string{"no meaning for a shared block"},
		},
		{
			name: "two addresses", address: "203.0.113.10",
			annotations: map[string]string{contract.ServiceRequestedIP: "203.0.113.11"},
			problems:    []string{"clear one of them"},
		},
		{name: "annotations of others", annotations: map[string]string{"phoenixnap.com/team": "a",
			"example.com/ip-x": "b"}, check: func(Desired) bool { return true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations},
				Spec: corev1.ServiceSpec{LoadBalancerIP: test.address}}
			got, err := ReadDesired(service, withDefaults(test.options))
			if test.problems == nil {
				if err != nil || !test.check(got) {
					t.Errorf("desired %+v, %v", got, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("desired %+v without an error", got)
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
