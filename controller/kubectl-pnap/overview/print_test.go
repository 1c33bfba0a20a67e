package overview

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

func TestStyleFollowsTheEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		env     map[string]string
		unicode bool
	}{
		"nothing is set":           {nil, false},
		"UTF-8":                    {map[string]string{"LANG": "en_US.UTF-8"}, true},
		"LC_ALL overrides LANG":    {map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, false},
		"an empty LC_ALL does not": {map[string]string{"LC_ALL": "", "LC_CTYPE": "de_DE.utf8"}, true},
	} {
		style := StyleFor(&bytes.Buffer{}, func(name string) (string, bool) {
			value, set := tc.env[name]
			return value, set
		})
		if style.Unicode != tc.unicode || style.Color || style.Width != 80 {
			t.Errorf("%s: %+v", name, style)
		}
	}
}

// Colours take no columns, and without Unicode the glyphs are ASCII; the words are the same.
func TestMarks(t *testing.T) {
	for _, o := range []outcome{healthy, waiting, broken, unknown} {
		plain := sheet{}.mark(o, "word")
		painted := sheet{Style: text.Style{Color: true, Unicode: true}}.mark(o, "word")
		if text.Columns(plain) != 6 || text.Columns(painted) != 6 || !strings.Contains(painted, "word") ||
			strings.ContainsFunc(plain, func(r rune) bool { return r > 126 }) {
			t.Errorf("%q, %q", plain, painted)
		}
	}
}

func TestTable(t *testing.T) {
	got := sheet{Style: text.Style{Unicode: true}}.table([]string{"A", "B"},
		[][]string{{"x", "y"}, {"longer", strings.Repeat("word ", 20)}})
	want := "A       B\nx       y\nlonger  word word word word word word word word word word word word word word\n   " +
		"     word word word word word word\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An old report, a silent controller and missing answers are shown, not hidden.
func TestWhatIsOldIsCalledOld(t *testing.T) {
	holder := "a"
	renewed := metav1.NewMicroTime(now.Add(-time.Hour))
	o := Make(Facts{Now: now, Networks: accountRead(2 * time.Hour),
		Leader: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}}})
	var out bytes.Buffer
	if err := PrintStatus(&out, text.Style{}, o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"x no active replica: a renewed its Lease 60m ago", "account read 120m ago",
		"No controller has read the account for 120m",
		"none is published on the Nodes",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// Every standing is shown with a word, and which of them are a problem.
func TestStandings(t *testing.T) {
	allocated := &[]v1beta1.Allocation{{Address: "203.0.113.2"}}
	condition := func(kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: reason,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	}
	deleted := metav1.NewTime(now)
	for want, object := range map[string]v1beta1.IPBlock{
		"+ in-use": {Spec: v1beta1.IPBlockSpec{BlockID: "b"}, Status: v1beta1.IPBlockStatus{Allocations: allocated}},
		"+ free": {Spec: v1beta1.IPBlockSpec{BlockID: "b"}, Status: v1beta1.IPBlockStatus{
			Allocations: &[]v1beta1.Allocation{}, Conditions: condition(v1beta1.ConditionOrphaned, "False", "x")}},
		"! retained": {Spec: v1beta1.IPBlockSpec{BlockID: "b"}, Status: v1beta1.IPBlockStatus{
			Conditions: condition(v1beta1.ConditionAssigned, "False", v1beta1.AssignedRetained)}},
		"x orphan": {Spec: v1beta1.IPBlockSpec{BlockID: "b"}, Status: v1beta1.IPBlockStatus{
			Conditions: condition(v1beta1.ConditionOrphaned, "True", v1beta1.OrphanedAwaitingConfirmation)}},
		"! waiting":  {},
		"! deleting": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}},
	} {
		block := blockOf(&object)
		if got := (sheet{}).standing(block); got != want {
			t.Errorf("%+v is shown as %q, want %q", object, got, want)
		}
		orphan := block.Standing == standingOrphan
		if orphan != (block.Unused != nil) || orphan && block.Reason != v1beta1.OrphanedAwaitingConfirmation ||
			orphan && !block.Unused.Equal(now.Add(-time.Hour)) {
			t.Errorf("%+v", block)
		}
	}
}

// What a block is for, by whom it was made and whom it names.
func TestPurposes(t *testing.T) {
	ref := &v1beta1.ServiceReference{Namespace: "shop", Name: "web"}
	for want, spec := range map[string]v1beta1.IPBlockSpec{
		"Service shop/web":            {Purpose: v1beta1.PurposeService, ServiceRef: ref},
		"the Service that names mine": {Purpose: v1beta1.PurposeService, Source: v1beta1.SourceBrought},
		"Services":                    {Purpose: v1beta1.PurposeShared},
		"Services that name mine":     {Purpose: v1beta1.PurposeShared, Source: v1beta1.SourceBrought},
		"nodes":                       {Purpose: v1beta1.PurposeNodes, Source: v1beta1.SourceBrought},
	} {
		object := v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: spec}
		if got := blockOf(&object).For; got != want {
			t.Errorf("%+v is for %q, want %q", spec, got, want)
		}
	}
}

// TestSeveralNetworks: each has its own line, whichever Node comes first, and a Node names those of its server.
func TestSeveralNetworks(t *testing.T) {
	object := func(name, id, location, blocks string) v1beta1.PublicNetwork {
		return v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.PublicNetworkSpec{ID: id},
			Status: v1beta1.PublicNetworkStatus{Location: location, Blocks: blocks}}
	}
	node := func(name string, networks ...contract.NodeNetwork) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: nodenet.On(networks...)}}
	}
	east := contract.NodeNetwork{Name: "default", ID: "e", VLAN: 20, Member: true,
		Announcer: contract.AnnouncerAgent}
	west := contract.NodeNetwork{Name: "west", ID: "w", VLAN: 21, Member: true,
		Announcer: contract.AnnouncerAgent}
	outside := east
	outside.Member = false
	o := Make(Facts{Now: now, Nodes: []corev1.Node{node("a", west), node("b", east), node("c", west, east),
		node("d", outside)}, Networks: []v1beta1.PublicNetwork{object("west", "w", "PHX", "1/10"),
		object("default", "e", "ASH", "3/10"), object("new", "n", "", "")}})
	var out bytes.Buffer
	if err := PrintStatus(&out, text.Style{}, o); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"Public network default: e, ASH, VLAN 20, announced by agent, 3/10 IPv4 blocks",
		"Public network new: n, not read yet", "Public network west: w, PHX, VLAN 21, 1/10 IPv4 blocks",
		"a ? unknown + west", "b ? unknown + default", "c ? unknown + default,west", "d ? unknown ! no",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
