package ipblock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

var pool = network.Owner{Cluster: "c1", Pool: "default"}

// poolBlock is a block of the pool whose ID is the letter and whose CIDR the ledger's.
func poolBlock(status network.BlockStatus, l ipblock.Ledger, change ...func(*ipblock.PoolBlock)) ipblock.PoolBlock {
	b := ipblock.PoolBlock{Ledger: l, Sighting: network.Sighting{Block: block(l.BlockID, status, cidr(l.CIDR.String()),
		func(b *network.Block) { b.Tags = pool.Tags() })}}
	for _, c := range change {
		c(&b)
	}
	return b
}

func named(id, cidr string) func(*ipblock.Ledger) {
	return func(l *ipblock.Ledger) {
		l.BlockID = id
		l.CIDR = prefix(cidr)
	}
}

func gone(b *ipblock.PoolBlock) { b.Gone = true }

func foreignBlock(b *ipblock.PoolBlock) { b.Foreign = true }

// describeAllocated says a decision in few words, stored ledgers as block, holders and mark.
func describeAllocated(p ipblock.Allocated) string {
	text := fmt.Sprintf("%s %s %s", p.Action, p.Reason, p.Block.ID)
	if p.Address.IsValid() {
		text += " " + p.Address.String()
	}
	if p.Reused {
		text += " reused"
	}
	for _, l := range p.Save {
		text += fmt.Sprintf("; save %s %d held %d quarantined", l.BlockID, len(l.Held), len(l.Quarantined))
		if l.Closed {
			text += " closed"
		}
	}
	return text
}

func TestAllocate(t *testing.T) {
	one := func(b ...ipblock.PoolBlock) []ipblock.PoolBlock { return b }
	const second = "203.0.113.16/29"
	two16 := ledger29(nil, named("b", second), func(l *ipblock.Ledger) {
		l.Held[addr("203.0.113.18")] = holder("x")
		l.Held[addr("203.0.113.19")] = holder("y")
	})
	webInB := ledger29(nil, named("b", second),
		func(l *ipblock.Ledger) { l.Held[addr("203.0.113.18")] = holder("web") })
	for _, test := range []struct {
		name   string
		wish   wanted
		blocks []ipblock.PoolBlock
		coming bool
		want   string
	}{
		{name: "no block", want: "buy PurchaseDue "},
		{name: "no block, one is coming", coming: true, want: "wait BlockInvisible "},
		{name: "a block without a ledger", blocks: one(poolBlock(network.Assigned, ledger29(nil), func(b *ipblock.PoolBlock) {
			b.Ledger = ipblock.Ledger{}
		})), want: "done BlockAssigned a 203.0.113.10; save a 1 held 0 quarantined"},
		{name: "a block that is being created", blocks: one(poolBlock(network.Creating, ledger29(nil))),
			want: "done BlockAssigned a 203.0.113.10; save a 1 held 0 quarantined"},
		{name: "full", blocks: one(poolBlock(network.Assigned, ledger29(full29))), want: "buy PurchaseDue "},
		{name: "what it has costs nothing", blocks: one(poolBlock(network.Assigned,
			ledger29(map[string]string{"203.0.113.11": "web"}))), want: "done BlockAssigned a 203.0.113.11"},
		{name: "what it has, in a block that a person unassigned", blocks: one(poolBlock(network.Unassigning,
			ledger29(map[string]string{"203.0.113.11": "web"}))), want: "done BlockAssigned a 203.0.113.11"},
		{name: "what it has, in a block that is hidden", blocks: one(poolBlock(network.Assigned,
			ledger29(map[string]string{"203.0.113.11": "web"}), func(b *ipblock.PoolBlock) {
				b.Sighting.Hidden = true
			})), want: "wait DeletionUnverified a 203.0.113.11"},
		{name: "what it has, in a closed block", blocks: one(poolBlock(network.Assigned,
			ledger29(map[string]string{"203.0.113.11": "web"}, closed))),
			want: "done BlockAssigned a 203.0.113.11; save a 1 held 0 quarantined"},
		{name: "what its predecessor had", blocks: one(poolBlock(network.Assigned, ledger29(nil, func(l *ipblock.Ledger) {
			l.Held[addr("203.0.113.11")] = ipblock.Holder{Namespace: "shop", Name: "web", UID: "old"}
		}))), want: "done BlockAssigned a 203.0.113.11; save a 1 held 0 quarantined"},
		{name: "the fuller block", blocks: one(poolBlock(network.Assigned,
			ledger29(map[string]string{"203.0.113.10": "h0"})), poolBlock(network.Assigned, two16)),
			want: "done BlockAssigned b 203.0.113.20; save b 3 held 0 quarantined"},
		{name: "the one on the network, of two that are equally full",
			blocks: one(poolBlock(network.Creating, ledger29(nil)), poolBlock(network.Assigned, ledger29(nil,
				named("b", second)))), want: "done BlockAssigned b 203.0.113.18; save b 1 held 0 quarantined"},
		{name: "not the one in error", blocks: one(poolBlock(network.ErrorAssigning, ledger29(four29)),
			poolBlock(network.Assigned, ledger29(nil, named("b", second)))),
			want: "done BlockAssigned b 203.0.113.18; save b 1 held 0 quarantined"},
		{name: "the one in error before a purchase", blocks: one(poolBlock(network.ErrorAssigning, ledger29(four29))),
			want: "done BlockAssigned a 203.0.113.12; save a 5 held 0 quarantined"},
		{name: "not the one of another network", blocks: one(poolBlock(network.Assigned, ledger29(nil),
			func(b *ipblock.PoolBlock) { b.Sighting.Block.ResourceID = "net2" })), want: "buy PurchaseDue "},
		{name: "not the one of a server", blocks: one(poolBlock(network.Assigned, ledger29(nil),
			func(b *ipblock.PoolBlock) { b.Sighting.Block.ResourceType = "server" })), want: "buy PurchaseDue "},
		{name: "not the one in a state that is not known", blocks: one(poolBlock("subnetted", ledger29(nil))),
			want: "buy PurchaseDue "},
		{name: "not a gone one", blocks: one(poolBlock(network.Assigned, ledger29(nil), gone)), want: "buy PurchaseDue "},
		{name: "not one that is not the pool's any more",
			blocks: one(poolBlock(network.Assigned, ledger29(nil), foreignBlock)), want: "buy PurchaseDue "},
		{name: "what it has, in a block that is not the pool's any more",
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}), foreignBlock)),
			want:   "done BlockAssigned a 203.0.113.11"},
		{name: "the one that is being released, before a purchase", blocks: one(poolBlock(network.Unassigning,
			ledger29(nil, closed))), want: "done BlockAssigned a 203.0.113.10; save a 1 held 0 quarantined"},
		{name: "not the one that is being released, while another has room",
			blocks: one(poolBlock(network.Assigned, ledger29(nil, closed)), poolBlock(network.Unassigned, ledger29(nil,
				named("b", second)))), want: "done BlockAssigned b 203.0.113.18; save b 1 held 0 quarantined"},
		{name: "one is quarantined", blocks: one(poolBlock(network.Assigned,
			ledger29(four29, quarantined("203.0.113.12", "api", time.Minute)))), want: "wait AddressQuarantined "},
		{name: "one was quarantined", blocks: one(poolBlock(network.Assigned, ledger29(four29, quarantined("203.0.113.12", "api",
			time.Hour)))), want: "done BlockAssigned a 203.0.113.12 reused; save a 5 held 0 quarantined"},
		{name: "one was quarantined, another is fresh",
			blocks: one(poolBlock(network.Assigned, ledger29(four29, quarantined("203.0.113.12", "api", time.Hour))),
				poolBlock(network.Assigned, ledger29(nil, named("b", second)))),
			want: "done BlockAssigned b 203.0.113.18; save b 1 held 0 quarantined"},

		{name: "two: the published one wins", wish: wish(published("203.0.113.18")),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"})),
				poolBlock(network.Assigned, webInB)),
			want: "done BlockAssigned b 203.0.113.18; save a 0 held 1 quarantined"},
		{name: "two: the first one wins", blocks: one(poolBlock(network.Assigned, webInB),
			poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}))),
			want: "done BlockAssigned a 203.0.113.11; save b 0 held 1 quarantined"},
		{name: "published once, free", wish: wish(published("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(nil))),
			want:   "done BlockAssigned a 203.0.113.13; save a 1 held 0 quarantined"},
		{name: "published once, another's now", wish: wish(published("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.13": "api"}))),
			want:   "done BlockAssigned a 203.0.113.10; save a 2 held 0 quarantined"},
		{name: "published, block gone", wish: wish(published("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.13": "web"}), gone)),
			want:   "refuse BlockLost "},
		{name: "published, block gone, to be replaced",
			wish:   wish(published("203.0.113.13"), replace),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.13": "web"}), gone)),
			want:   "buy PurchaseDue ; save a 0 held 1 quarantined"},
		{name: "not published, block gone", blocks: one(poolBlock(network.Assigned,
			ledger29(map[string]string{"203.0.113.13": "web"}), gone), poolBlock(network.Assigned,
			ledger29(nil, named("b", second)))),
			want: "done BlockAssigned b 203.0.113.18; save b 1 held 0 quarantined; save a 0 held 1 quarantined"},

		{name: "requested", wish: wish(requested("203.0.113.13")), blocks: one(poolBlock(network.Assigned,
			ledger29(nil))), want: "done BlockAssigned a 203.0.113.13; save a 1 held 0 quarantined"},
		{name: "requested, in the block that is being released", wish: wish(requested("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(nil, closed))),
			want:   "done BlockAssigned a 203.0.113.13; save a 1 held 0 quarantined"},
		{name: "requested, another's", wish: wish(requested("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.13": "api"}))),
			want:   "refuse AddressRefused "},
		{name: "requested, quarantined", wish: wish(requested("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(nil, quarantined("203.0.113.13", "api", time.Second)))),
			want:   "wait AddressQuarantined a"},
		{name: "requested, the gateway", wish: wish(requested("203.0.113.9")),
			blocks: one(poolBlock(network.Assigned, ledger29(nil))), want: "refuse AddressRefused "},
		{name: "requested, elsewhere", wish: wish(requested("192.0.2.9")),
			blocks: one(poolBlock(network.Assigned, ledger29(nil))), want: "refuse AddressRefused "},
		{name: "requested, nothing bought for it", wish: wish(requested("192.0.2.9")),
			want: "refuse AddressRefused "},
		{name: "requested before anything is published", wish: wish(requested("203.0.113.13")),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}))),
			want:   "done BlockAssigned a 203.0.113.13; save a 1 held 1 quarantined"},
		{name: "requested after another is published",
			wish:   wish(requested("203.0.113.13"), published("203.0.113.11")),
			blocks: one(poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}))),
			want:   "refuse AddressRefused a 203.0.113.11"},
		{name: "requested and published", wish: wish(requested("203.0.113.11"),
			published("203.0.113.11")), blocks: one(poolBlock(network.Assigned,
			ledger29(map[string]string{"203.0.113.11": "web"}))), want: "done BlockAssigned a 203.0.113.11"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.wish.RequestedSource = "the annotation requested-ip"
			got := ipblock.Allocate(holder("web"), test.wish.request(), test.blocks, test.coming)
			if diff := cmp.Diff(test.want, describeAllocated(got)); diff != "" {
				t.Errorf("allocated (-want +got):\n%s%s", diff, got.Detail)
			}
			if (got.Action == ipblock.Refuse) != (got.Detail != "") {
				t.Errorf("%s with detail %q", got.Action, got.Detail)
			}
			for _, l := range got.Save {
				if err := l.Check(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestRefusedPlacementsSayWhatToDo(t *testing.T) {
	w := wish(requested("203.0.113.13"), published("203.0.113.11")).request()
	w.RequestedSource = "spec.loadBalancerIP"
	b := poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}))
	want := "the Service has address 203.0.113.11; that cannot be changed in place to 203.0.113.13: set " +
		"spec.loadBalancerIP to 203.0.113.11 or clear it, or delete the Service and create it again"
	if diff := cmp.Diff(want, ipblock.Allocate(holder("web"), w, []ipblock.PoolBlock{b}, false).Detail); diff != "" {
		t.Errorf("sentence (-want +got):\n%s", diff)
	}
}

// fill places Services one after the other in a network that holds room blocks and returns how many got
// an address, and the blocks.
func fill(t *testing.T, services, room int, size ipblock.Size) (placed int, blocks []ipblock.PoolBlock) {
	t.Helper()
	w := wanted{}.request()
	given := map[string]string{}
	for i := range services {
		name := fmt.Sprint("s", i)
		p := ipblock.Allocate(holder(name), w, blocks, false)
		if p.Action == ipblock.Buy {
			if len(blocks) == room {
				return placed, blocks
			}
			l := ipblock.NewLedger(fmt.Sprintf("block%02d", len(blocks)),
				prefix(fmt.Sprintf("203.0.%d.0%s", len(blocks), size)))
			blocks = append(blocks, poolBlock(network.Creating, l))
			p = ipblock.Allocate(holder(name), w, blocks, false)
		}
		if p.Action != ipblock.Done || len(p.Save) != 1 {
			t.Fatalf("Service %d: %s", i, describeAllocated(p))
		}
		if other, twice := given[p.Address.String()]; twice {
			t.Fatalf("address %s is given to %s and %s", p.Address, other, name)
		}
		given[p.Address.String()] = name
		for j := range blocks {
			if blocks[j].Ledger.BlockID == p.Save[0].BlockID {
				blocks[j].Ledger = p.Save[0]
			}
		}
		placed++
	}
	return placed, blocks
}

// TestServicesThatAPoolHolds: a network holds ten blocks; one of them may be the nodes'.
func TestServicesThatAPoolHolds(t *testing.T) {
	for _, test := range []struct {
		room int
		size ipblock.Size
		want int
	}{
		{network.BlockLimit - 1, 29, 45}, {network.BlockLimit, 29, 50},
		{network.BlockLimit, 28, 130}, {network.BlockLimit, 30, 10},
	} {
		t.Run(fmt.Sprintf("%d blocks of size %s", test.room, test.size), func(t *testing.T) {
			placed, blocks := fill(t, test.want+1, test.room, test.size)
			if placed != test.want || len(blocks) != test.room {
				t.Errorf("%d Services in %d blocks, want %d in %d", placed, len(blocks), test.want, test.room)
			}
			less := test.want - countHosts(prefix("203.0.113.0"+test.size.String()))
			if placed, blocks := fill(t, less, test.room, test.size); placed != less || len(blocks) != test.room-1 {
				t.Errorf("%d Services take %d blocks, want one less than %d", placed, len(blocks), test.room)
			}
		})
	}
}

// TestAllocateDoesNotDependOnOrder: the same blocks in another order lead to the same decision.
func TestAllocateDoesNotDependOnOrder(t *testing.T) {
	_, blocks := fill(t, 23, 10, 29)
	blocks = append(blocks, poolBlock(network.Assigned, ledger29(nil, named("c", "198.51.100.0/29"))),
		poolBlock(network.Assigned, ledger29(nil, named("d", "198.51.100.8/29"))))
	want := describeAllocated(ipblock.Allocate(holder("web"), wanted{}.request(), blocks, false))
	if !strings.HasPrefix(want, "done") {
		t.Fatal(want)
	}
	for shift := range blocks {
		turned := append(append([]ipblock.PoolBlock{}, blocks[shift:]...), blocks[:shift]...)
		if got := describeAllocated(ipblock.Allocate(holder("web"), wanted{}.request(), turned,
			false)); got != want {
			t.Errorf("turned by %d: %s, want %s", shift, got, want)
		}
	}
}
