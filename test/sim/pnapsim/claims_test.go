package pnapsim_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestPublications: which addresses may be published, beside one that is.
func TestPublications(t *testing.T) {
	const block = "6047127fed34ecc3ba8402da"
	const lonely = "60473c2509268bc77fd06d2a"
	const lonelyBlock = "6047127fed34ecc3ba8402db"
	account := simtest.Account()
	account.Networks = append(account.Networks, pnapsim.NetworkSeed{ID: lonely, Name: "lonely", Location: "ASH"})
	account.Blocks = append(account.Blocks,
		pnapsim.BlockSeed{ID: block, Location: "ASH", CIDR: "198.51.100.0/29", Network: simtest.NetworkID},
		pnapsim.BlockSeed{ID: lonelyBlock, Location: "ASH", CIDR: "198.51.100.8/29", Network: lonely},
		pnapsim.BlockSeed{ID: foreignBlock, Location: "ASH", CIDR: "198.51.100.16/29"})
	for _, tt := range []struct {
		name           string
		block, address string
		service        string
		shared         bool
		true           bool
	}{
		{"third address", block, "198.51.100.2", "default/new", false, true},
		{"again for the same Service", block, "198.51.100.3", "default/old", false, true},
		{"another Service's", block, "198.51.100.3", "default/new", false, false},
		{"another Service's, shared by one side", block, "198.51.100.3", "default/new", true, false},
		{"shared by both", block, "198.51.100.4", "default/new", true, true},
		{"network address", block, "198.51.100.0", "default/new", false, false},
		{"gateway", block, "198.51.100.1", "default/new", false, false},
		{"broadcast address", block, "198.51.100.7", "default/new", false, false},
		{"of another block", block, "198.51.100.10", "default/new", false, false},
		{"none", block, "", "default/new", false, false},
		{"a node's own", simtest.NodeBlockID, "203.0.113.2", "default/new", false, false},
		{"on a network without members", lonelyBlock, "198.51.100.10", "default/new", false, false},
		{"of an unassigned block", foreignBlock, "198.51.100.18", "default/new", false, false},
		{"of a block that is not there", lonely, "198.51.100.2", "default/new", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sim, _ := simtest.Unjudged(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
			claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: "default/old", Block: block,
				Address: "198.51.100.3"})
			claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: "default/shared", Block: block,
				Address: "198.51.100.4", Shared: true})
			claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: tt.service, Block: tt.block,
				Address: tt.address, Shared: tt.shared})
			if convicted := slices.Contains(rules(sim), "claim-published"); convicted == tt.true {
				t.Errorf("violations %v, want the claim true: %t", sim.Violations(), tt.true)
			}
		})
	}
}

func TestReleaseClaims(t *testing.T) {
	sim, url := simtest.Unjudged(t, pnapsim.Config{}, simtest.Seed())
	b := newPlain(t, url).buy()
	for id, want := range map[string]bool{b.ID: false, "6047127fed34ecc3ba84ffff": true} {
		falsehoods, err := sim.Claim(pnapsim.Claim{Client: simtest.ClientID, Kind: pnapsim.ClaimReleased, Block: id})
		if err != nil || (len(falsehoods) == 0) != want {
			t.Errorf("block %s is released: %v, %v; want %t", id, falsehoods, err, want)
		}
	}
	for _, c := range []pnapsim.Claim{{Client: "unknown", Kind: pnapsim.ClaimReleased},
		{Client: simtest.ClientID, Kind: "wish"}} {
		if _, err := sim.Claim(c); err == nil {
			t.Errorf("claim %+v was accepted", c)
		}
	}
}

// TestOwnershipByTags: a block with the client's tags belongs to the client, which may delete it and must not leak it.
func TestOwnershipByTags(t *testing.T) {
	account := simtest.Account()
	account.Clients[0].OwnershipTags = map[string]string{"usage": "auto", "cluster": "c1"}
	add := func(id, cidr string, tags map[string]string) {
		account.Blocks = append(account.Blocks, pnapsim.BlockSeed{ID: id, Location: "ASH", CIDR: cidr, Tags: tags})
	}
	const own, half = "6047127fed34ecc3ba8402da", "6047127fed34ecc3ba8402db"
	add(own, "198.51.100.0/29", map[string]string{"usage": "auto", "cluster": "c1", "service": "a_b"})
	add(half, "198.51.100.8/29", map[string]string{"usage": "auto", "cluster": "c2"})
	sim, url := simtest.Unjudged(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	p := newPlain(t, url)
	if leaks := sim.LeakCheck(simtest.ClientID); !slices.Equal(leaks, []string{own}) {
		t.Errorf("leaks %v, want only the client's own", leaks)
	}
	if leaks := sim.LeakCheck(simtest.ClientID, own); len(leaks) != 0 {
		t.Errorf("leaks %v beside the retained block", leaks)
	}
	before := len(sim.Violations())
	if got := p.delete(own); got.status != http.StatusOK || len(sim.Violations()) != before {
		t.Errorf("deleting its own: %d, %v", got.status, sim.Violations())
	}
	if got := p.delete(half); got.status != http.StatusOK || len(sim.Violations()) != before+1 {
		t.Errorf("deleting another cluster's: %d, %v", got.status, sim.Violations())
	}
}

// TestViewsDisagree: the network's list of members follows the servers later.
func TestViewsDisagree(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	members := func() int {
		return len(decodeAnswer[struct {
			Members []any `json:"memberships"`
		}](t, p.must(http.StatusOK, http.MethodGet, "/networks/v1/public-networks/"+simtest.NetworkID, nil)).Members)
	}
	edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: simtest.Server1ID, Network: simtest.NetworkID})
	if members() != 2 || len(sim.DataPlane().Networks[0].Members) != 1 {
		t.Error("the network's view must lag behind the switch")
	}
	sim.Advance(2 * time.Second)
	if members() != 1 {
		t.Error("the network's view did not follow")
	}
}

// TestQueuedChanges: where a busy network queues, changes end one after the other.
func TestQueuedChanges(t *testing.T) {
	account := simtest.Account()
	account.Clients[0].Judged = false
	sim, url := simtest.New(t, pnapsim.Config{Switches: pnapsim.Switches{Busy: "queue"}},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	p := newPlain(t, url)
	a := p.buy()
	b := p.buy()
	sim.Advance(time.Second)
	p.assign(a.ID)
	p.assign(b.ID)
	sim.Advance(30 * time.Second)
	if first, second := p.block(a.ID).Status, p.block(b.ID).Status; first != "assigned" || second != "assigning" {
		t.Errorf("after 30 s: %s and %s", first, second)
	}
	sim.Advance(30 * time.Second)
	if second := p.block(b.ID).Status; second != "assigned" {
		t.Errorf("after 60 s: %s", second)
	}
}
