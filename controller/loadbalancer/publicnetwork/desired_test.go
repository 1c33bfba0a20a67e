package publicnetwork

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const networkID = "60473c2509268bc77fd06d29"

// defaults are the options of who sets only the load balancer.
func defaults() *config.Config {
	return &config.Config{
		LoadBalancer: config.LoadBalancer{Announcer: contract.AnnouncerKubeVIP,
			Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}},
		Allocation: contract.AllocationDedicated, BlockSize: "/29", MaxRetained: 2, MaxRetainedPerNamespace: 1,
		NodeAddress: config.NodeAddressBlock, ServiceNodeSelector: labels.Everything(),
	}
}

func defaultSpec() v1beta1.PublicNetworkSpec {
	return v1beta1.PublicNetworkSpec{
		ID: networkID, Announcer: v1beta1.AnnouncerKubeVIP,
		IPBlocks: v1beta1.IPBlockPolicy{Allocation: v1beta1.AllocationDedicated, Size: "/29",
			MaximumRetained: new(int32(2)), MaximumRetainedPerNamespace: new(int32(1))},
		Members: v1beta1.MemberPolicy{Membership: v1beta1.MembershipReport, Addresses: v1beta1.MemberAddressesBlock},
	}
}

// TestDesired: each option about the network is in the spec, and only there.
func TestDesired(t *testing.T) {
	for name, tc := range map[string]struct {
		option func(*config.Config)
		spec   func(*v1beta1.PublicNetworkSpec)
	}{
		"defaults": {func(*config.Config) {}, func(*v1beta1.PublicNetworkSpec) {}},
		"agents": {func(o *config.Config) { o.LoadBalancer.Announcer = contract.AnnouncerAgent },
			func(s *v1beta1.PublicNetworkSpec) { s.Announcer = v1beta1.AnnouncerAgent }},
		"shared": {func(o *config.Config) { o.Allocation = contract.AllocationShared },
			func(s *v1beta1.PublicNetworkSpec) { s.IPBlocks.Allocation = v1beta1.AllocationShared }},
		"size": {func(o *config.Config) { o.BlockSize = "/28" },
			func(s *v1beta1.PublicNetworkSpec) { s.IPBlocks.Size = "/28" }},
		"maximum": {func(o *config.Config) { o.MaxIPBlocks = 4 },
			func(s *v1beta1.PublicNetworkSpec) { s.IPBlocks.Maximum = new(int32(4)) }},
		"a maximum that no object holds": {func(o *config.Config) { o.MaxIPBlocks = math.MaxInt },
			func(s *v1beta1.PublicNetworkSpec) { s.IPBlocks.Maximum = new(int32(math.MaxInt32)) }},
		"none retained": {func(o *config.Config) { o.MaxRetained = 0 },
			func(s *v1beta1.PublicNetworkSpec) { s.IPBlocks.MaximumRetained = new(int32(0)) }},
		"more retained of a namespace": {func(o *config.Config) { o.MaxRetainedPerNamespace = 2 },
			func(s *v1beta1.PublicNetworkSpec) { s.IPBlocks.MaximumRetainedPerNamespace = new(int32(2)) }},
		"managed": {func(o *config.Config) { o.ManageMembership = true },
			func(s *v1beta1.PublicNetworkSpec) { s.Members.Membership = v1beta1.MembershipManage }},
		"without addresses": {func(o *config.Config) { o.NodeAddress = config.NodeAddressNone },
			func(s *v1beta1.PublicNetworkSpec) { s.Members.Addresses = v1beta1.MemberAddressesNone }},
		"selector": {selecting(t, "public=true"), func(s *v1beta1.PublicNetworkSpec) {
			s.Members.NodeSelector = []v1beta1.NodeRequirement{
				{Key: "public", Operator: "In", Values: []string{"true"}}}
		}},
	} {
		options := defaults()
		tc.option(options)
		want := defaultSpec()
		tc.spec(&want)
		if diff := cmp.Diff(want, desired(options)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func selecting(t *testing.T, selector string) func(*config.Config) {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *config.Config) { o.ServiceNodeSelector = parsed }
}

// TestRequirements: each word that a selector may have is one of the definition.
func TestRequirements(t *testing.T) {
	for selector, want := range map[string]v1beta1.NodeRequirement{
		"a=b":           {Key: "a", Operator: "In", Values: []string{"b"}},
		"a==b":          {Key: "a", Operator: "In", Values: []string{"b"}},
		"a in (c,b)":    {Key: "a", Operator: "In", Values: []string{"b", "c"}},
		"a!=b":          {Key: "a", Operator: "NotIn", Values: []string{"b"}},
		"a notin (b,c)": {Key: "a", Operator: "NotIn", Values: []string{"b", "c"}},
		"a":             {Key: "a", Operator: "Exists"},
		"!a":            {Key: "a", Operator: "DoesNotExist"},
		"a>3":           {Key: "a", Operator: "Gt", Values: []string{"3"}},
		"a<3":           {Key: "a", Operator: "Lt", Values: []string{"3"}},
	} {
		options := defaults()
		selecting(t, selector)(options)
		if diff := cmp.Diff([]v1beta1.NodeRequirement{want}, desired(options).Members.NodeSelector); diff != "" {
			t.Errorf("%s (-want +got):\n%s", selector, diff)
		}
	}
	options := defaults()
	selecting(t, "b=1,a")(options)
	if got := desired(options).Members.NodeSelector; len(got) != 2 || got[0].Key != "a" || got[1].Key != "b" {
		t.Errorf("two requirements, ordered by key: %+v", got)
	}
}

// TestEachAnnouncerHasItsWord: a kind that may be configured is one that the definition allows.
func TestEachAnnouncerHasItsWord(t *testing.T) {
	for _, kind := range announcer.Kinds() {
		if announcer.Word(kind) == v1beta1.AnnouncerNone {
			t.Errorf("%s:// has no kind", kind)
		}
	}
}
