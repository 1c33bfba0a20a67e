package publicnetwork

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func another(name, id string, minutes int) v1beta1.PublicNetwork {
	return v1beta1.PublicNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))},
		Spec: v1beta1.PublicNetworkSpec{ID: id, Announcer: v1beta1.AnnouncerAgent},
	}
}

// TestFurther: what is refused says what to do, and the older one of two objects of a network is served, in whatever
// order they are listed.
func TestFurther(t *testing.T) {
	const (
		id1 = "60473c2509268bc77fd06d2a"
		id2 = "60473c2509268bc77fd06d2b"
	)
	options := &config.Config{LoadBalancer: config.LoadBalancer{Announcer: contract.AnnouncerAgent,
		Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}}}
	changed := func(change func(*v1beta1.PublicNetworkSpec)) v1beta1.PublicNetwork {
		object := another("west", id1, 1)
		change(&object.Spec)
		return object
	}
	for name, tc := range map[string]struct {
		object v1beta1.PublicNetwork
		others []v1beta1.PublicNetwork
		reason string
		says   string
	}{
		"another network": {object: another("west", id1, 1)},
		"a third one beside it": {object: another("west", id1, 1),
			others: []v1beta1.PublicNetwork{another("a", id2, 0)}},
		"a younger twin": {object: another("west", id1, 1), others: []v1beta1.PublicNetwork{another("twin", id1, 0)},
			reason: ReasonDuplicateID, says: "kubectl delete pubnet west"},
		"an older twin": {object: another("west", id1, 1), others: []v1beta1.PublicNetwork{another("twin", id1, 2)}},
		"a twin of the same age": {object: another("west", id1, 1),
			others: []v1beta1.PublicNetwork{another("east", id1, 1)}, reason: ReasonDuplicateID,
			says: "PublicNetwork east"},
		"that of the option": {object: another("west", networkID, 1),
			others: []v1beta1.PublicNetwork{another("default", networkID, 2)}, reason: ReasonDuplicateID,
			says: "kubectl delete pubnet west"},
		"another default": {object: another("default", id1, 1), reason: ReasonOtherNetwork,
			says: "kubectl annotate pubnet default phoenixnap.com/allow-deletion=true, then kubectl delete pubnet " +
				"default"},
		"another announcer": {object: changed(func(s *v1beta1.PublicNetworkSpec) {
			s.Announcer = v1beta1.AnnouncerKubeVIP
		}), reason: ReasonNotSupported, says: "set spec.announcer to Agent"},
		"managed members": {object: changed(func(s *v1beta1.PublicNetworkSpec) {
			s.Members.Membership = v1beta1.MembershipManage
		})},
		"a selector that means nothing": {object: changed(func(s *v1beta1.PublicNetworkSpec) {
			s.Members.NodeSelector = []v1beta1.NodeRequirement{{Key: "a b", Operator: "Exists"}}
		}), reason: ReasonNotSupported, says: "spec.members.nodeSelector"},
	} {
		for _, all := range [][]v1beta1.PublicNetwork{append([]v1beta1.PublicNetwork{tc.object}, tc.others...),
			append(tc.others, tc.object)} {
			c := candidates{options: options, all: all}
			got, refused := c.refuse(&tc.object)
			if refused != (tc.reason != "") || got.reason != tc.reason || !strings.Contains(got.message, tc.says) {
				t.Errorf("%s: %+v", name, got)
			}
			served, complete := c.served()
			is := slices.ContainsFunc(served, func(o v1beta1.PublicNetwork) bool { return o.Name == tc.object.Name })
			if is == refused || !complete {
				t.Errorf("%s: served %t, refused %t, complete %t", name, is, refused, complete)
			}
		}
	}
	object := another("west", id1, 1)
	why, refused := candidates{options: &config.Config{}, all: []v1beta1.PublicNetwork{object}}.refuse(&object)
	if !refused || why.reason != ReasonNotSupported || !strings.Contains(why.message, "kubectl delete pubnet west") {
		t.Errorf("without the option, no network is served: %+v", why)
	}
}

// TestVLANsWithKubeVIP: it knows networks by the names of their interfaces, so of those with one VLAN ID one is served,
// and none before that is known.
func TestVLANsWithKubeVIP(t *testing.T) {
	options := &config.Config{LoadBalancer: config.LoadBalancer{Announcer: contract.AnnouncerKubeVIP,
		Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}}}
	byKubeVIP := func(name, id string, minutes int) v1beta1.PublicNetwork {
		object := another(name, id, minutes)
		object.Spec.Announcer = v1beta1.AnnouncerKubeVIP
		return object
	}
	west := byKubeVIP("west", "60473c2509268bc77fd06d2a", 2)
	east := byKubeVIP("east", "60473c2509268bc77fd06d2b", 1)
	for name, tc := range map[string]struct {
		home, west, east int // negative while it was not read
		served           []string
		complete         bool
		says             string
	}{
		"all differ":           {56, 57, 58, []string{"east", "west"}, true, ""},
		"that of the option":   {56, 56, 58, []string{"east"}, true, "PublicNetwork default has the VLAN ID 56"},
		"that of an older one": {56, 57, 57, []string{"east"}, true, "PublicNetwork east has the VLAN ID 57"},
		"not read":             {56, -1, 58, []string{"east"}, false, "before its VLAN is read"},
		"option not read":      {-1, 57, 58, nil, false, "before its VLAN is read"},
		"not in the account":   {56, 0, 0, []string{"east", "west"}, true, ""},
	} {
		c := candidates{options: options, all: []v1beta1.PublicNetwork{west, east}, vlans: map[string]int{}}
		for id, vlan := range map[string]int{networkID: tc.home, west.Spec.ID: tc.west, east.Spec.ID: tc.east} {
			if vlan >= 0 {
				c.vlans[id] = vlan
			}
		}
		served, complete := c.served()
		var names []string
		for _, o := range served {
			names = append(names, o.Name)
		}
		slices.Sort(names)
		why, _ := c.refuse(&west)
		if !slices.Equal(names, tc.served) || complete != tc.complete || !strings.Contains(why.message, tc.says) {
			t.Errorf("%s: %q are served (complete %t); west: %+v", name, names, complete, why)
		}
	}
}

// TestPolicyOf: requirements of Nodes are read as they are written, and what an object does not say is as its
// definition has it.
func TestPolicyOf(t *testing.T) {
	object := another("west", "60473c2509268bc77fd06d2a", 1)
	if p := PolicyOf(&object); p != (Policy{Named: NamedOf(&object), Allocation: contract.AllocationDedicated,
		BlockSize: "/29", MaxRetained: 2, MaxRetainedPerNamespace: 1}) {
		t.Errorf("%+v", p)
	}
	selector, err := labels.Parse("role in (edge,front),!old,zone,number>3,number<9,name notin (x)")
	if err != nil {
		t.Fatal(err)
	}
	object.Spec.Members.NodeSelector = requirements(selector)
	object.Spec.IPBlocks = v1beta1.IPBlockPolicy{Allocation: v1beta1.AllocationShared, Size: "/28",
		Maximum: new(int32(4)), MaximumRetained: new(int32(0)), MaximumRetainedPerNamespace: new(int32(3))}
	p := PolicyOf(&object)
	if p.Selector.String() != selector.String() {
		t.Errorf("%s, want %s", p.Selector, selector)
	}
	p.Selector = nil
	if p != (Policy{Named: NamedOf(&object), Allocation: contract.AllocationShared, BlockSize: "/28", MaxBlocks: 4,
		MaxRetainedPerNamespace: 3}) {
		t.Errorf("%+v", p)
	}
}
