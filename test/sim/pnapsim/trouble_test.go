package pnapsim_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// A client that gets another failure than 401 cannot know that its token is over.
func TestTokenIsRefusedOnlyWhenRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		during pnapsim.Fault
		want   []string
	}{
		"refused": {want: []string{"stale-token"}},
		"another failure": {during: pnapsim.Fault{Action: pnapsim.FaultStatus,
			Status: http.StatusServiceUnavailable}},
		"no answer": {during: pnapsim.Fault{Action: pnapsim.FaultReset, Method: http.MethodDelete}},
	} {
		t.Run(name, func(t *testing.T) {
			sim, url := simtest.Unjudged(t, pnapsim.Config{}, simtest.Seed())
			p := newPlain(t, url)
			sim.RevokeTokens("")
			if tc.during.Action != "" {
				arm(t, sim, tc.during)
			}
			p.do(http.MethodDelete, "/ips/v1/ip-blocks/60473c2509268bc77fd06dff", nil)
			sim.Advance(time.Minute)
			p.do(http.MethodGet, "/ips/v1/ip-blocks", nil)
			if got := rules(sim); !slices.Equal(got, tc.want) {
				t.Errorf("broken are %q, want %q", got, tc.want)
			}
		})
	}
}

// A pause binds a process, not the one that comes after its crash; a purchase without an answer binds both.
func TestRestartForgetsPausesNotPurchases(t *testing.T) {
	for name, tc := range map[string]struct {
		fault     pnapsim.Fault
		restarted bool
		want      []string
	}{
		"pause that no client keeps": {fault: pnapsim.Fault{Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 30},
			want: []string{"retry-after"}},
		"pause of a process before": {fault: pnapsim.Fault{Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 30},
			restarted: true},
		"purchase without an answer": {fault: pnapsim.Fault{Action: pnapsim.FaultReset},
			want: []string{"repeated-post"}},
		"purchase of a process before": {fault: pnapsim.Fault{Action: pnapsim.FaultReset}, restarted: true,
			want: []string{"repeated-post"}},
	} {
		t.Run(name, func(t *testing.T) {
			sim, url := simtest.Unjudged(t, pnapsim.Config{}, simtest.Seed())
			p := newPlain(t, url)
			arm(t, sim, tc.fault)
			p.do(http.MethodPost, "/ips/v1/ip-blocks", purchase())
			if tc.restarted {
				sim.ClientRestarted(simtest.ClientID)
			}
			sim.Advance(10 * time.Second)
			p.do(http.MethodPost, "/ips/v1/ip-blocks", purchase())
			if got := rules(sim); !slices.Equal(got, tc.want) {
				t.Errorf("broken are %q, want %q", got, tc.want)
			}
		})
	}
	sim, _ := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	sim.ClientRestarted("a client that is unknown")
}

// A status of the portal's choice stays until it is taken back; then the network shows its own.
func TestNetworkStatusReturns(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	status := func() any { return sim.State(simtest.AccountID).Networks[0]["status"] }
	edit := func(word string) {
		if err := sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: simtest.NetworkID,
			Status: word}); err != nil {
			t.Fatal(err)
		}
	}
	p.buyAssigned(sim)
	bought := p.buy()
	sim.Advance(10 * time.Second)
	p.assign(bought.ID)
	edit("ERROR")
	if got := status(); got != "ERROR" {
		t.Errorf("status is %v, want the portal's ERROR", got)
	}
	edit("")
	if got := status(); got != "BUSY" {
		t.Errorf("status is %v, want BUSY: a block is being assigned", got)
	}
	edit("BUSY")
	sim.Advance(time.Minute)
	if got := status(); got != "BUSY" {
		t.Errorf("status is %v, want the portal's BUSY after the assignment", got)
	}
	edit("")
	if got := status(); got != "READY" {
		t.Errorf("status is %v, want READY", got)
	}
}
