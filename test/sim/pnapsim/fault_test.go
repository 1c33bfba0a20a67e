package pnapsim_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestFaults: what a client sees of each fault, and what was done all the same.
func TestFaults(t *testing.T) {
	post := pnapsim.Fault{Method: http.MethodPost, Path: "/ips/v1/ip-blocks"}
	for _, tt := range []struct {
		name      string
		fault     func(*pnapsim.Fault)
		status    int
		validJSON bool
		bought    int
	}{
		{"status", func(f *pnapsim.Fault) {
			f.Action = pnapsim.FaultStatus
			f.Status = 422
		}, 422, true, 0},
		{"html", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultHTML }, 502, false, 0},
		{"empty", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultEmpty }, 201, false, 1},
		{"truncate", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultTruncate }, 201, false, 1},
		{"drop-field", func(f *pnapsim.Fault) {
			f.Action = pnapsim.FaultDropField
			f.Field = "id"
		}, 201, true, 1},
		{"hang", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultHang }, 0, false, 0},
		{"reset", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultReset }, 0, false, 0},
		{"lost", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultLost }, 0, false, 1},
		{"duplicate", func(f *pnapsim.Fault) { f.Action = pnapsim.FaultDuplicate }, 201, true, 2},
		{"another client's", func(f *pnapsim.Fault) {
			f.Action = pnapsim.FaultStatus
			f.Status = 500
			f.Client = "x"
		}, 201, true, 1},
		{"another account's", func(f *pnapsim.Fault) {
			f.Action = pnapsim.FaultStatus
			f.Status = 500
			f.Account = "x"
		}, 201, true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
			p := newPlain(t, url)
			f := post
			tt.fault(&f)
			if f.Action == pnapsim.FaultHang {
				p.http.Timeout = 300 * time.Millisecond
			}
			arm(t, sim, f)
			got := p.do(http.MethodPost, "/ips/v1/ip-blocks", purchase())
			if got.status != tt.status || json.Valid(got.body) != tt.validJSON {
				t.Errorf("%d %s, want %d, valid JSON %t", got.status, got.body, tt.status, tt.validJSON)
			}
			if bought := sim.Money(simtest.AccountID).Purchases; bought != tt.bought {
				t.Errorf("%d blocks bought, want %d", bought, tt.bought)
			}
		})
	}
}

func TestFaultWindow(t *testing.T) {
	sim, url := simtest.Unjudged(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	arm(t, sim, pnapsim.Fault{Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultStatus, Status: 500, Skip: 1, Times: 2})
	var seen []int
	get := func() { seen = append(seen, p.do(http.MethodGet, "/ips/v1/ip-blocks", nil).status) }
	for range 4 {
		get()
	}
	arm(t, sim, pnapsim.Fault{Action: pnapsim.FaultStatus, Status: 503, Times: -1, For: pnapsim.Duration(time.Minute)})
	get()
	sim.Advance(time.Minute)
	get()
	arm(t, sim, pnapsim.Fault{Action: pnapsim.FaultStatus, Status: 503, Times: -1})
	sim.Disarm()
	get()
	want := []int{200, 500, 500, 200, 503, 200, 200}
	for i := range want {
		if seen[i] != want[i] {
			t.Fatalf("statuses %v, want %v", seen, want)
		}
	}
	for _, wrong := range []pnapsim.Fault{
		{Action: "explode"}, {Action: pnapsim.FaultOutcome, Outcome: "odd"}, {Action: pnapsim.FaultStatus, Status: 9},
		{Action: pnapsim.FaultEmpty, Path: "["},
	} {
		if err := sim.Arm(wrong); err == nil {
			t.Errorf("fault %+v was armed", wrong)
		}
	}
}

// TestDelay: an answer waits for the model time, the change behind it does not.
func TestDelay(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	arm(t, sim, pnapsim.Fault{Method: http.MethodPost, Action: pnapsim.FaultDelay,
		Delay: pnapsim.Duration(10 * time.Second)})
	done := make(chan answer)
	go func() { done <- p.do(http.MethodPost, "/ips/v1/ip-blocks", purchase()) }()
	for sim.Money(simtest.AccountID).Purchases == 0 {
		select {
		case got := <-done:
			t.Fatalf("answered %d %s before it was bought", got.status, got.body)
		default:
		}
	}
	sim.Advance(9 * time.Second)
	select {
	case <-done:
		t.Fatal("answered after 9 s of 10")
	default:
	}
	sim.Advance(time.Second)
	if got := <-done; got.status != http.StatusCreated {
		t.Errorf("%d", got.status)
	}
}

func TestLateAndRevertedAssignment(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	arm(t, sim, pnapsim.Fault{Path: assignPath(), Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeLate,
		Delay: pnapsim.Duration(time.Hour)})
	b := p.buy()
	sim.Advance(time.Second)
	p.assign(b.ID)
	sim.Advance(30 * time.Minute)
	p.login()
	if got := p.block(b.ID); got.Status != "assigning" || got.Resource != simtest.NetworkID ||
		got.Kind != "PUBLIC_NETWORK" {
		t.Errorf("stuck: %+v", got)
	}
	sim.Advance(31 * time.Minute)
	p.login()
	if got := p.block(b.ID).Status; got != "assigned" {
		t.Errorf("late: %s", got)
	}
	arm(t, sim, pnapsim.Fault{Path: assignPath(), Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeRevert})
	c := p.buy()
	sim.Advance(time.Second)
	p.assign(c.ID)
	sim.Advance(30 * time.Second)
	if got := p.block(c.ID); got.Status != "unassigned" || got.Resource != "" {
		t.Errorf("reverted: %+v", got)
	}
}

// TestListLag: a list lags behind, the lookup by ID does not.
func TestListLag(t *testing.T) {
	latency := pnapsim.DefaultLatency()
	latency.ListLag = pnapsim.Duration(10 * time.Second)
	sim, url := simtest.New(t, pnapsim.Config{Latency: &latency}, simtest.Seed())
	p := newPlain(t, url)
	b := p.buy()
	if len(p.blocks()) != 1 || p.block(b.ID).Status != "creating" {
		t.Error("a new block is in the list at once")
	}
	sim.Advance(10 * time.Second)
	if len(p.blocks()) != 2 {
		t.Error("a new block is not in the list after the lag")
	}
	p.delete(b.ID)
	if len(p.blocks()) != 2 || p.do(http.MethodGet, "/ips/v1/ip-blocks/"+b.ID, nil).status != http.StatusForbidden {
		t.Error("a deleted block left the list at once, or is still there by ID")
	}
	sim.Advance(10 * time.Second)
	if len(p.blocks()) != 1 {
		t.Error("a deleted block is in the list after the lag")
	}
	if again := p.buy(); again.CIDR == b.CIDR {
		t.Error("a freed CIDR was sold again at once")
	}
	sim.Advance(time.Minute)
	if again := p.do(http.MethodPost, "/ips/v1/ip-blocks", map[string]any{"location": "ASH",
		"cidrBlockSize": "/30"}); !strings.Contains(string(again.body), strings.TrimSuffix(b.CIDR, "/29")+"/30") {
		t.Errorf("a freed CIDR was not sold again after a minute: %s", again.body)
	}
}

// TestServerListLag: the list of servers lags behind, the lookup by ID does not; an omitted element is there by ID.
func TestServerListLag(t *testing.T) {
	latency := pnapsim.DefaultLatency()
	latency.ServerListLag = pnapsim.Duration(10 * time.Minute)
	latency.NetworkListLag = latency.ServerListLag
	sim, url := simtest.New(t, pnapsim.Config{Latency: &latency, TokenLifetime: time.Hour}, simtest.Seed())
	p := newPlain(t, url)
	count := func(path string) int {
		var list []map[string]any
		if err := json.Unmarshal(p.do(http.MethodGet, path, nil).body, &list); err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	const servers, networks = "/bmc/v1/servers", "/networks/v1/public-networks"
	before := count(servers)
	networksBefore := count(networks)
	edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
	edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditDeleteNetwork, Network: simtest.NetworkID})
	sim.Advance(5 * time.Minute)
	if count(servers) != before || count(networks) != networksBefore {
		t.Error("a list does not lag")
	}
	if got := p.do(http.MethodGet, servers+"/"+simtest.Server1ID, nil).status; got != http.StatusForbidden {
		t.Errorf("the ID answers %d, want 403", got)
	}
	sim.Advance(10 * time.Minute)
	if count(servers) != before-1 || count(networks) != networksBefore-1 {
		t.Error("a list lags too much")
	}
	arm(t, sim, pnapsim.Fault{Path: servers, Action: pnapsim.FaultOmit, Element: 0})
	if got := count(servers); got != before-2 {
		t.Errorf("%d servers, want one left out of %d", got, before-1)
	}
	if got := count(servers); got != before-1 {
		t.Errorf("%d servers after the fault, want %d", got, before-1)
	}
}

// TestAddBlock: the portal's user adds a block to a network.
func TestAddBlock(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	before := len(p.blocks())
	edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: simtest.NetworkID,
		Tags: map[string]string{"team": "portal"}})
	after := p.blocks()
	if len(after) != before+1 || after[before].Status != "assigned" {
		t.Errorf("%v, want one assigned block more than %d", after, before)
	}
	if err := sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: "none"}); err == nil {
		t.Error("a block was added to no network")
	}
}

// TestAddServer: the portal's user rents a server; it is switched on and a member of no public network.
func TestAddServer(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	const id = "66a1f0c2b5d3e4f5a6b7c8d9"
	added := pnapsim.Edit{Kind: pnapsim.EditAddServer, Server: id, Hostname: "srv-new", Network: simtest.NetworkID,
		IPs: []string{"10.0.0.77"}}
	edit(t, sim, added)
	var got struct {
		Hostname, Status, NetworkType string
		PrivateIPAddresses            []string
	}
	if err := json.Unmarshal(newPlain(t, url).do(http.MethodGet, "/bmc/v1/servers/"+id, nil).body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Hostname != "srv-new" || got.Status != "powered-on" || got.NetworkType != "PRIVATE_ONLY" ||
		!slices.Equal(got.PrivateIPAddresses, []string{"10.0.0.77"}) {
		t.Errorf("it is %+v", got)
	}
	added.Network = "none"
	if err := sim.OutOfBand(added); err == nil {
		t.Error("a server was added where no network is")
	}
}

func TestSwitches(t *testing.T) {
	for _, tt := range []struct {
		name     string
		switches pnapsim.Switches
		do       func(*testing.T, *pnapsim.Sim, *plain) int
		want     int
	}{
		{"missing", pnapsim.Switches{Missing: 404}, func(_ *testing.T, _ *pnapsim.Sim, p *plain) int {
			return p.do(http.MethodGet, "/ips/v1/ip-blocks/none", nil).status
		}, 404},
		{"deleteWrongState", pnapsim.Switches{DeleteWrongState: 400}, func(_ *testing.T, _ *pnapsim.Sim, p *plain) int {
			return p.delete(simtest.NodeBlockID).status
		}, 400},
		{"memberAddress", pnapsim.Switches{MemberAddress: 400}, func(_ *testing.T, _ *pnapsim.Sim, p *plain) int {
			return p.unassign(simtest.NodeBlockID).status
		}, 400},
		{"busy", pnapsim.Switches{Busy: "queue"}, func(_ *testing.T, sim *pnapsim.Sim, p *plain) int {
			a := p.buy()
			b := p.buy()
			sim.Advance(time.Second)
			p.assign(a.ID)
			return p.assign(b.ID).status
		}, 202},
		{"unknownProperty", pnapsim.Switches{UnknownProperty: "400"}, func(_ *testing.T, _ *pnapsim.Sim, p *plain) int {
			body := purchase()
			body["colour"] = "red"
			return p.do(http.MethodPost, "/ips/v1/ip-blocks", body).status
		}, 400},
		{"tokenRefusal", pnapsim.Switches{TokenRefusal: 400}, func(_ *testing.T, _ *pnapsim.Sim, p *plain) int {
			return p.form("grant_type=client_credentials&client_id=x").status
		}, 400},
		{"tagFilter", pnapsim.Switches{TagFilter: "or"}, func(t *testing.T, _ *pnapsim.Sim, p *plain) int {
			return len(decodeAnswer[[]blockAnswer](t,
				p.do(http.MethodGet, "/ips/v1/ip-blocks?tag=delete.false&tag=x.y", nil)))
		}, 1},
		{"tagFilter and", pnapsim.Switches{}, func(t *testing.T, _ *pnapsim.Sim, p *plain) int {
			return len(decodeAnswer[[]blockAnswer](t,
				p.do(http.MethodGet, "/ips/v1/ip-blocks?tag=delete.false&tag=x.y", nil)))
		}, 0},
		{"overLimit", pnapsim.Switches{OverLimit: 422}, func(t *testing.T, sim *pnapsim.Sim, p *plain) int {
			for range 8 {
				p.buyAssigned(sim)
			}
			b := p.buy()
			sim.Advance(time.Second)
			return p.assign(b.ID).status
		}, 422},
	} {
		t.Run(tt.name, func(t *testing.T) {
			account := simtest.Account()
			foreign()(&account)
			sim, url := simtest.Unjudged(t, pnapsim.Config{Switches: tt.switches},
				pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
			if got := tt.do(t, sim, newPlain(t, url)); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if err := new(pnapsim.Switches).Set("missing", "410"); err == nil {
		t.Error("410 for missing was taken")
	}
}

// TestRestart: a restart ends tokens and faults, and accounts where its state is lost.
func TestRestart(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	sim.Restart(true)
	if got := p.do(http.MethodGet, "/bmc/v1/servers", nil).status; got != http.StatusUnauthorized {
		t.Errorf("an old token: %d", got)
	}
	p.login()
	p.must(http.StatusOK, http.MethodGet, "/bmc/v1/servers/"+simtest.Server1ID, nil)
	sim.Restart(false)
	if state := sim.State(simtest.AccountID); len(state.Servers) != 0 {
		t.Errorf("state %v", state)
	}
}
