package membership

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

var (
	choosing = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	one      = ipblock.Holder{Name: "one"}
	other    = ipblock.Holder{Name: "other"}
)

// offered is a source with room for one server, which a holder has.
func offered(id string, holder ipblock.Holder) source {
	cidr := netip.MustParsePrefix("203.0.113.0/30")
	s := source{block: network.Block{ID: id, CIDR: cidr}, ledger: ipblock.NewLedger(id, cidr)}
	if holder.Name != "" {
		s.ledger, _, _ = s.ledger.Take(holder, ipblock.Ask{Now: choosing})
	}
	return s
}

// quarantined is a source whose address a server left a moment ago.
func quarantined(id string) source {
	s := offered(id, other)
	s.ledger = s.ledger.Free(other, choosing)
	return s
}

func TestChoose(t *testing.T) {
	broken := offered("broken", ipblock.Holder{})
	broken.reason = ReasonNodeBlockUnavailable
	brokenAndHeld := offered("held", one)
	brokenAndHeld.reason = ReasonNodeBlockUnavailable
	hidden := source{}
	free := offered("free", ipblock.Holder{})
	full := offered("full", other)
	later := offered("later", ipblock.Holder{})
	for name, test := range map[string]struct {
		sources []source
		want    string
	}{
		"the first with an address":                       {[]source{full, broken, free, later}, "free"},
		"not one that no list shows":                      {[]source{hidden, free}, "free"},
		"what the server holds":                           {[]source{free, offered("held", one)}, "held"},
		"what the server holds, though it cannot be used": {[]source{free, brokenAndHeld}, "held"},
		"one without a quarantine":                        {[]source{quarantined("waits"), free}, "free"},
		"waiting before reporting":                        {[]source{full, broken, quarantined("waits")}, "waits"},
		"what is wrong before what is full":               {[]source{full, broken}, "broken"},
		"the first that is full":                          {[]source{full, offered("later", other)}, "full"},
		"one":                                             {[]source{full}, "full"},
	} {
		got := choose(test.sources, one, ipblock.Ask{Now: choosing})
		if got.block.ID != test.want {
			t.Errorf("%s: block %q, want %q", name, got.block.ID, test.want)
		}
	}
}

// unassigned is a second block of the account, which the controller has to assign.
func unassigned(seed pnapsim.Seed) pnapsim.Seed {
	seed = withLarger(seed)
	second := &seed.Accounts[0].Blocks[len(seed.Accounts[0].Blocks)-1]
	second.Network = ""
	second.Grants = []string{pnapsim.GrantAssign}
	return seed
}

func (w *world) expectStatus(id, want string) {
	w.t.Helper()
	for _, view := range w.sim.State(simtest.AccountID).Blocks {
		if view["id"] == id && view["status"] != want {
			w.t.Errorf("block %s is %v, want %s", id, view["status"], want)
		}
	}
}

// A second block that a person brings extends the first, and is assigned when the first is full and not before.
func TestASecondBroughtBlockExtendsTheFirst(t *testing.T) {
	w := newWorld(t, unassigned(seedOf(3, "203.0.113.0/30", nil)), nil)
	w.bring("zz-second", largerBlock)
	w.node(0, true)
	w.start()
	w.run(5 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectStatus(largerBlock, "unassigned")
	w.node(1, true)
	w.node(2, true)
	w.run(5 * time.Minute)
	w.expectMember(1, "203.0.113.66 assigned")
	w.expectMember(2, "203.0.113.67 assigned")
	w.expectPurchases(0)
	w.selectNode(2, false)
	w.run(10 * time.Minute)
	w.expectMember(2, "none")
	w.start() // another process
	w.selectNode(2, true)
	w.run(5 * time.Minute)
	w.expectMember(2, "203.0.113.68 assigned") // the one before is in quarantine
	for _, text := range w.takeEvents() {
		if strings.HasPrefix(text, "Warning") {
			t.Errorf("event %q", text)
		}
	}
}

// The controller writes only the status of the object, with which server has which address. Without the object the
// servers keep their addresses, and the next one gets none of the block.
func TestTheObjectOfANodeBlock(t *testing.T) {
	w := newWorld(t, seedOf(2, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, false)
	w.start()
	w.run(5 * time.Minute)
	l := w.ledger()
	if l.Object != broughtObject || !l.Nodes || !l.Brought || len(l.Held) != 1 {
		t.Errorf("the ledger is %+v", l)
	}
	if err := kubefake.DeleteAllowed(t.Context(), w.blocks, broughtObject); err != nil {
		t.Fatal(err)
	}
	w.selectNode(1, true)
	w.run(20 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectPurchases(1)
	if got := w.member(1); got == "none" || strings.HasPrefix(got, "203.0.113.") && got < "203.0.113.16" {
		t.Errorf("the membership is %s", got)
	}
	w.selectNode(0, false)
	w.run(20 * time.Minute)
	w.expectMember(0, "none")
	if object := w.objectOf(simtest.NodeBlockID); object != "" {
		t.Errorf("IPBlock %s is created for a block that no one brings any more", object)
	}
}

// A block that was bought goes once a person brings another one and no server uses it.
func TestABroughtBlockReplacesABoughtOne(t *testing.T) {
	seed := seedOf(2, "203.0.113.64/28", ownedBy)
	seed.Accounts[0].Blocks[0].Tags = map[string]string{"of": "person"} // and brought later
	w := newWorld(t, seed, nil)
	w.node(0, true)
	w.node(1, false)
	w.start()
	w.run(10 * time.Minute)
	w.expectPurchases(1)
	bought := w.recorded()
	w.bring(broughtObject, simtest.NodeBlockID)
	w.selectNode(1, true)
	w.run(time.Hour)
	w.expectMember(1, "203.0.113.66 assigned")
	w.expectBlocks(simtest.NodeBlockID, bought) // in use
	w.selectNode(0, false)
	w.run(time.Hour)
	w.expectMember(0, "none")
	w.expectBlocks(simtest.NodeBlockID)
}

// A block that a person says is brought is not released, though its tags say that it was bought for the nodes.
func TestABlockThatIsBroughtIsNeverReleased(t *testing.T) {
	seed := withSurplus(1, surplusA)
	seed.Accounts[0].Blocks[1].Grants = []string{pnapsim.GrantAssign}
	w := newWorld(t, seed, nil)
	w.bring(broughtObject, surplusB)
	w.node(0, true)
	w.start()
	w.run(time.Hour)
	w.expectBlocks(surplusB)
	said := strings.Join(w.takeEvents(), "\n")
	if !strings.Contains(said, "or remove its tags in the phoenixNAP portal") {
		t.Errorf("events %q", said)
	}
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: surplusB})
	w.run(time.Hour)
	w.expectBlocks(surplusB)
}

// A purchase without an answer is forgotten once it is certain that no block comes of it, though none is needed.
func TestAPurchaseThatABroughtBlockReplacesIsForgotten(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", ownedBy), nil)
	w.writePurchase(w.sim.Clock().Now(), "")
	w.node(0, true)
	w.start()
	w.run(time.Hour)
	w.expectMember(0, "203.0.113.2 assigned")
	if left := w.records(); len(left) > 0 {
		t.Errorf("records %+v are left", left)
	}
}

// What the controller has named, and what is being deleted, brings no block for the nodes.
func TestWhatBringsNoNodeBlock(t *testing.T) {
	w := newWorld(t, seedOf(1, "", ownedBy), nil)
	w.bring(v1beta1.NamePrefix+simtest.NodeBlockID, simtest.NodeBlockID)
	w.create("of-services", v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared,
		BlockID: surplusA})
	w.node(0, true)
	w.start()
	w.run(10 * time.Minute)
	w.expectPurchases(1)
	if got := w.get(0).Annotations[contract.NodeMembershipManaged]; got != "default" {
		t.Errorf("annotation %q", got)
	}
}
