package publicnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	server1 = "5fa54d1e91867c03a0a7b4a1"
	server2 = "5fa54d1e91867c03a0a7b4a2"
	server3 = "5fa54d1e91867c03a0a7b4a3"
	foreign = "5fa54d1e91867c03a0a7b4a9"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// public is a network with some IPv4 blocks, one of IPv6, and three members, of which one is no Node.
func public(blocks int) network.Network {
	n := network.Network{ID: networkID, Location: "ASH", VLAN: 20, Status: network.StatusReady,
		Blocks:  []network.ListedBlock{{ID: "six", CIDR: netip.MustParsePrefix("2001:db8::/64")}},
		Members: []network.Member{{ServerID: server1}, {ServerID: server2}, {ServerID: foreign}}}
	for i := range blocks {
		n.Blocks = append(n.Blocks, network.ListedBlock{ID: fmt.Sprintf("b%d", i),
			CIDR: netip.MustParsePrefix(fmt.Sprintf("203.0.113.%d/29", 8*i))})
	}
	return n
}

func node(name, providerID, vlanReady string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{contract.NodeVLANReady: vlanReady}}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

// nodes are a member that carries traffic, one that does not, two that are no members, and one of another provider.
func nodes() []*corev1.Node {
	return []*corev1.Node{
		node("ready", "phoenixnap://"+server1, contract.TagTrue), node("unready", "bmc://servers/"+server2, "false"),
		node("outside", "phoenixnap://"+server3, contract.TagTrue), node("new", "", ""),
		node("other", "aws:///us-east-1a/i-0123", contract.TagTrue),
	}
}

func TestStatus(t *testing.T) {
	object := &v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 3}, Spec: defaultSpec()}
	got := status(object, sight{network: public(3), askedAt: noon}, nodes(), noon)
	want := v1beta1.PublicNetworkStatus{Location: "ASH", VLAN: 20, IPv4Blocks: 3, IPv4BlockLimit: 10, Blocks: "3/10",
		Members: 2, ReadyMembers: 1, Nodes: "1/2", Conditions: got.Conditions}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := conditions(got); s != "Ready=True NetworkReady, Full=False Room" {
		t.Error(s)
	}
	object.Status = got
	again := status(object, sight{network: public(3), askedAt: noon.Add(time.Hour)}, nodes(), noon.Add(time.Hour))
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("nothing has changed, so nothing is to be written (-before +after):\n%s", diff)
	}
	full := status(object, sight{network: public(10), askedAt: noon}, nil, noon)
	if s := conditions(full); s != "Ready=True NetworkReady, Full=True BlockLimit" || full.Blocks != "10/10" ||
		full.Nodes != "0/0" {
		t.Errorf("%s, %+v", s, full)
	}
}

// TestTheTimeOfTheAccountIsWrittenSeldom: every five minutes, and as soon as the account can be read again.
func TestTheTimeOfTheAccountIsWrittenSeldom(t *testing.T) {
	at := noon.Add
	const none = -time.Hour
	for name, tc := range map[string]struct {
		shown, read, since, want time.Duration // since noon; none for no time
	}{
		"never read":                        {none, none, none, none},
		"never by this process":             {0, none, none, 0},
		"the first time":                    {none, 0, 0, 0},
		"the first time of this process":    {0, time.Minute, time.Minute, time.Minute},
		"it is shown already":               {0, 0, 0, 0},
		"less than a second later":          {0, time.Millisecond, time.Millisecond, 0},
		"a minute later":                    {0, time.Minute, -time.Minute, 0},
		"five minutes later":                {0, 5 * time.Minute, -time.Minute, 5 * time.Minute},
		"a minute later, and a failure ago": {0, time.Minute, time.Minute, time.Minute},
		"while it fails, the last success":  {0, time.Minute, none, time.Minute},
	} {
		var shown *metav1.Time
		if tc.shown != none {
			shown = new(metav1.NewTime(at(tc.shown)))
		}
		var review account.Review
		if tc.read != none {
			review.At = at(tc.read)
		}
		if tc.since != none {
			review.Since = at(tc.since)
		}
		object := &v1beta1.PublicNetwork{Status: v1beta1.PublicNetworkStatus{AccountReadTime: shown}}
		got := status(object, sight{review: review}, nil, noon).AccountReadTime
		if (got == nil) != (tc.want == none) || got != nil && !got.Time.Equal(at(tc.want)) {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}

// conditions are types, states and reasons.
func conditions(s v1beta1.PublicNetworkStatus) string {
	var all []string
	for _, c := range s.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(all, ", ")
}

// TestFull: blocks of IPv6 have a limit of their own.
func TestFull(t *testing.T) {
	for blocks, want := range map[int]string{0: ReasonRoom, 9: ReasonRoom, 10: ReasonBlockLimit, 11: ReasonBlockLimit} {
		if got := full(public(blocks)); got.reason != want || (got.status == metav1.ConditionTrue) != (blocks >= 10) {
			t.Errorf("%d blocks: %+v, want %s", blocks, got, want)
		}
	}
}

// TestReady: only what makes the network useless, or has lasted, is reported.
func TestReady(t *testing.T) {
	missing := &pnap.Error{Op: "get public network", StatusCode: 404}
	state := func(s network.Status) network.Network { n := public(0); n.Status = s; return n }
	withVLAN := func(vlan int) network.Network { n := public(0); n.VLAN = vlan; return n }
	down := errors.New("connection refused")
	failing := func(since time.Duration) sight {
		return sight{network: public(1), askedAt: noon.Add(-since), err: down}
	}
	for name, tc := range map[string]struct {
		seen sight
		want string
	}{
		"ready":                  {sight{network: public(1), askedAt: noon}, ReasonNetworkReady},
		"busy":                   {sight{network: state(network.StatusBusy), askedAt: noon}, ReasonNetworkReady},
		"a state of a later API": {sight{network: state("MOVING"), askedAt: noon}, ReasonNetworkReady},
		"in error":               {sight{network: state(network.StatusError), askedAt: noon}, ReasonNetworkInError},
		"being deleted": {sight{network: state(network.StatusDeleting), askedAt: noon},
			ReasonNetworkDeleting},
		"without VLAN":                 {sight{network: withVLAN(0), askedAt: noon}, ReasonNetworkInError},
		"a VLAN that does not exist":   {sight{network: withVLAN(4095), askedAt: noon}, ReasonNetworkInError},
		"the last VLAN":                {sight{network: withVLAN(4094), askedAt: noon}, ReasonNetworkReady},
		"not of the account":           {sight{network: public(1), askedAt: noon, err: missing}, ReasonNetworkNotFound},
		"never of the account":         {sight{err: missing}, ReasonNetworkNotFound},
		"never read":                   {sight{err: down}, ReasonNetworkUnreadable},
		"a failure":                    {failing(patience - time.Second), ReasonNetworkReady},
		"a failure that lasts":         {failing(patience), ReasonNetworkUnreadable},
		"an old answer and no failure": {sight{network: public(1), askedAt: noon.Add(-time.Hour)}, ReasonNetworkReady},
	} {
		got := ready(networkID, tc.seen, noon)
		if got.reason != tc.want || (got.status == metav1.ConditionTrue) != (tc.want == ReasonNetworkReady) {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
		if got.status == metav1.ConditionFalse && !strings.Contains(got.message, networkID) {
			t.Errorf("%s: %q does not name the network", name, got.message)
		}
	}
}

// TestWhatIsNotKnownStays: before the network was read, nothing is said of it; while it cannot be read, the numbers are
// the last ones.
func TestWhatIsNotKnownStays(t *testing.T) {
	object := &v1beta1.PublicNetwork{Spec: defaultSpec()}
	if diff := cmp.Diff(v1beta1.PublicNetworkStatus{}, status(object, sight{}, nodes(), noon)); diff != "" {
		t.Error(diff)
	}
	object.Status = status(object, sight{network: public(3), askedAt: noon}, nodes(), noon)
	if diff := cmp.Diff(object.Status, status(object, sight{}, nil, noon)); diff != "" {
		t.Error(diff)
	}
	later := status(object, sight{err: errors.New("down")}, nil, noon)
	if later.Blocks != "3/10" || !meta.IsStatusConditionFalse(later.Conditions, v1beta1.ConditionReady) {
		t.Errorf("%+v", later)
	}
}
