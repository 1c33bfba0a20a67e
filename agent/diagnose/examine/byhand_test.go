//go:build linux

package examine

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

// machine is a server with one VLAN interface that has a public address; nothing answers on the wire but its gateway.
type machine struct{ asked []netip.Addr }

func (*machine) Read(context.Context) (check.Snapshot, error) {
	return check.Snapshot{
		Links: []check.Link{
			{Index: 1, Name: "bond0", Type: "bond", Up: true, LowerUp: true, OperState: "up", MTU: 9000,
				Bond: &check.Bond{Mode: "active-backup"}},
			{Index: 2, Name: "bond0.56", Type: "vlan", Up: true, LowerUp: true, OperState: "up", MTU: 1500, Parent: 1,
				MAC: "02:00:00:00:00:01", VLAN: &check.VLAN{ID: 56, Protocol: "802.1q"}},
		},
		Addresses: []check.Address{{LinkIndex: 2, Prefix: netip.MustParsePrefix("203.0.113.2/29")}},
	}, nil
}

func (*machine) Routes(check.Snapshot, []check.RouteQuestion) []check.RouteAnswer { return nil }

func (m *machine) Ask(_ context.Context, _ string, questions []arp.Question) ([]arp.Answer, error) {
	answers := make([]arp.Answer, len(questions))
	for i, q := range questions {
		m.asked = append(m.asked, q.Target)
		if q.Target == netip.MustParseAddr("203.0.113.1") {
			answers[i] = arp.Answer{MACs: []string{"02:00:00:00:00:99"}, Replied: true}
		}
	}
	return answers, nil
}

// TestWithoutAPIServer: without an API server, the remedy is a command that checks the machine's VLAN interface, on the
// wire too. The error is in the document once.
func TestWithoutAPIServer(t *testing.T) {
	const away = "no route to the API server"
	m := &machine{}
	e := New(Config{Node: "worker-1", NoClient: errors.New(away), Timeout: time.Minute, Reader: m, Prober: m})
	d, err := e.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const command = "phoenixnap-agent diagnose --vlan 56 --network 203.0.113.0/29 --address 203.0.113.2"
	first := d.Findings[0]
	if d.APIServer != away || first.ID != check.NetworkPublished || first.Status != check.Unknown ||
		!slices.Equal(first.Fixes[0].Commands, []string{command}) {
		t.Errorf("API server %q, first finding %+v, want the command %q", d.APIServer, first, command)
	}
	hand, err := check.ExpectedByHand(56, []string{"203.0.113.0/29"}, []string{"203.0.113.2"})
	if err != nil {
		t.Fatal(err)
	}
	e = New(Config{Node: "worker-1", NoClient: errors.New(away), ByHand: &hand, Timeout: time.Minute, Reader: m,
		Prober: m})
	if d, err = e.Examine(t.Context()); err != nil || d.Interface != "bond0.56" {
		t.Errorf("interface %q, %v", d.Interface, err)
	}
	status := map[check.ID]check.Status{}
	for _, f := range d.Findings {
		status[f.ID] = f.Status
		if strings.Contains(f.Cause+f.Observed+f.Because, away) {
			t.Errorf("%s repeats the error", f.ID)
		}
	}
	for id, want := range map[check.ID]check.Status{check.NetworkPublished: check.OK, check.UplinkUp: check.OK,
		check.VLANUp: check.OK, check.NodeAddress: check.OK, check.GatewayAnswers: check.OK,
		check.Forwarding: check.Fail} {
		if status[id] != want {
			t.Errorf("%s is %s, want %s", id, status[id], want)
		}
	}
	const vip = "203.0.113.3"
	if d, err = e.ExamineAddress(t.Context(), netip.MustParseAddr(vip)); err != nil || d.Address.Unasked != "" {
		t.Errorf("%s was not asked for: %+v, %v", vip, d.Address, err)
	}
	if asked := m.asked[len(m.asked)-1]; asked != netip.MustParseAddr(vip) {
		t.Errorf("%s was asked for last, want %s", asked, vip)
	}
}
