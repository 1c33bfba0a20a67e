package ipblock_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var shop = network.Owner{Cluster: "c1", Namespace: "shop", Name: "web"}

// v1Tags are what phoenixnap/k8s-cloud-provider-bmc v1 put on a block of shop.
func v1Tags() map[string]string {
	return map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "c1",
		contract.TagServiceNamespace: "shop", contract.TagServiceName: "web",
	}
}

func with(tags map[string]string, changes ...string) map[string]string {
	tags = maps.Clone(tags)
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			delete(tags, changes[i])
			continue
		}
		tags[changes[i]] = changes[i+1]
	}
	return tags
}

// listLag is how long after its creation a block is missing from lists, at most.
const listLag = 10 * time.Second

// account is a small model of the phoenixNAP account for random walks: it carries out steps, refuses
// what the API refuses, and notes what should never have been asked.
type account struct {
	rng      *rand.Rand
	now      time.Time
	blocks   []*modelBlock
	networks map[string]*modelNetwork
	purchase *ipblock.Purchase
	created  int
	// serial numbers all blocks that ever were.
	serial int
	faults []string
	// trouble is how many more assignments and unassignments may fail.
	trouble int
	// mayTouch reports whether a block may be changed.
	mayTouch func(network.Block) bool
	// ghosts are deleted blocks that lists still name.
	ghosts []modelBlock
}

type modelBlock struct {
	network.Block
	until time.Time // end of the state that is passing
	seen  time.Time // when lists begin to show it
	late  bool      // bought by a process that was frozen before it sent the purchase
}

type modelNetwork struct {
	id      string
	foreign int
	until   time.Time // busy until then
}

func newAccount(seed uint64) *account {
	a := &account{rng: rand.New(rand.NewPCG(seed, 7)), now: noon, networks: map[string]*modelNetwork{},
		mayTouch: shop.Owns}
	a.trouble = a.rng.IntN(4)
	for _, id := range []string{net1, "net2"} {
		a.networks[id] = &modelNetwork{id: id, foreign: a.rng.IntN(6)}
		if a.rng.IntN(3) == 0 {
			a.networks[id].until = noon.Add(time.Duration(a.rng.IntN(40)) * time.Second)
		}
	}
	if a.rng.IntN(3) == 0 {
		a.purchase = &ipblock.Purchase{Nonce: "left over",
			Time: noon.Add(-time.Duration(a.rng.IntN(90)) * time.Second)}
	}
	return a
}

// leave puts a block of an earlier life into the account.
func (a *account) leave(tags map[string]string, status network.BlockStatus, public string) *modelBlock {
	b := a.add(tags)
	b.Status = status
	b.seen = a.now
	switch status {
	case network.Unassigned, network.Creating:
	default:
		b.ResourceID = public
		b.ResourceType = "public network"
	}
	if slices.Contains([]network.BlockStatus{network.Creating, network.Assigning, network.Unassigning}, status) {
		b.until = a.now.Add(time.Duration(a.rng.IntN(60)) * time.Second)
	}
	return b
}

func (a *account) add(tags map[string]string) *modelBlock {
	id := a.serial
	b := &modelBlock{Block: network.Block{
		ID: fmt.Sprintf("block%02d", id), Location: "ASH", Tags: tags, Status: network.Creating,
		CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, byte(113 + id/32), byte(id % 32 * 8)}), 29),
	}}
	a.serial++
	a.blocks = append(a.blocks, b)
	return b
}

// advance lets time pass and carries out what it brings.
func (a *account) advance(d time.Duration) {
	a.now = a.now.Add(d)
	a.ghosts = slices.DeleteFunc(a.ghosts, func(g modelBlock) bool { return !a.now.Before(g.until) })
	for _, b := range a.blocks {
		if b.until.IsZero() || a.now.Before(b.until) {
			continue
		}
		b.until = time.Time{}
		fails := a.trouble > 0 && a.rng.IntN(2) == 0
		switch b.Status {
		case network.Creating:
			b.Status = network.Unassigned
		case network.Assigning:
			b.Status = network.Assigned
			if fails {
				a.trouble--
				b.Status = network.ErrorAssigning
			}
		case network.Unassigning:
			if fails {
				a.trouble--
				b.Status = network.ErrorUnassigning
				continue
			}
			b.Status = network.Unassigned
			b.ResourceID = ""
			b.ResourceType = ""
		default:
		}
	}
}

// view is what the account shows: lists lag, and a block whose ID was recorded shows by ID.
func (a *account) view() ipblock.Account {
	v := ipblock.Account{Now: a.now, Network: network.Named{ID: net1}, Purchase: a.purchase}
	for _, b := range a.blocks {
		if !a.now.Before(b.seen) || (a.purchase != nil && a.purchase.BlockID == b.ID) {
			v.Sightings = append(v.Sightings, network.Sighting{Block: b.Block})
		}
	}
	for _, ghost := range a.ghosts {
		v.Sightings = append(v.Sightings, network.Sighting{Block: ghost.Block, Hidden: true})
	}
	v.Networks = a.readNetworks()
	return v
}

func (a *account) readNetworks() map[string]network.Network {
	networks := map[string]network.Network{}
	for id, m := range a.networks {
		n := network.Network{ID: id, Location: "ASH", Status: network.StatusReady}
		if a.now.Before(m.until) {
			n.Status = network.StatusBusy
		}
		for i := range m.foreign {
			n.Blocks = append(n.Blocks, network.ListedBlock{ID: fmt.Sprint(id, "foreign", i),
				CIDR: prefix("198.51.100.0/29")})
		}
		for _, b := range a.blocks {
			if b.ResourceID == id {
				n.Blocks = append(n.Blocks, network.ListedBlock{ID: b.ID, CIDR: b.CIDR})
			}
		}
		networks[id] = n
	}
	return networks
}

// take carries a step out. A quarter of the steps is lost: half of these never reach the account, of the
// others only the answer is lost.
func (a *account) take(s ipblock.Step) {
	lost := a.rng.IntN(8)
	if s.Action == ipblock.Buy {
		a.purchase = &ipblock.Purchase{Nonce: "n", Time: a.now}
	}
	if lost == 0 {
		return
	}
	id := a.carryOut(s)
	if s.Action == ipblock.Buy && lost != 1 {
		a.purchase.BlockID = id
	}
}

func (a *account) carryOut(s ipblock.Step) (bought string) {
	if s.Action == ipblock.Buy {
		return a.sell(shop).ID
	}
	b := a.find(s.Block.ID)
	switch {
	case b == nil:
		a.fault("%s of block %q, which does not exist", s.Action, s.Block.ID)
	case !a.mayTouch(b.Block):
		a.fault("%s of block %s, which belongs to another owner", s.Action, b.ID)
	case s.Action == ipblock.Delete:
		a.remove(b)
	case s.Action == ipblock.Assign:
		a.move(b, s.Network, network.Assigning, network.Unassigned)
	case s.Action == ipblock.Unassign:
		a.move(b, s.Network, network.Unassigning, network.Assigned, network.ErrorAssigning, network.ErrorUnassigning)
	}
	return ""
}

// sell creates a block for the owner.
func (a *account) sell(o network.Owner) *modelBlock {
	b := a.add(o.Tags())
	b.until = a.now.Add(time.Duration(a.rng.IntN(10)) * time.Second)
	b.seen = a.now.Add(time.Duration(a.rng.Int64N(int64(listLag))))
	a.created++
	return b
}

func (a *account) remove(b *modelBlock) {
	if b.Status != network.Unassigned || b.ResourceID != "" {
		a.fault("deletion of block %s, which is %s", b.ID, b.Status)
		return
	}
	if network.Retained(b.Block) || b.Tags[contract.TagUsage] != contract.TagUsageAuto {
		a.fault("deletion of block %s, which is to stay: %v", b.ID, b.Tags)
	}
	a.vanish(b)
}

// vanish takes a block out of the account; lists name it for a while.
func (a *account) vanish(b *modelBlock) {
	a.blocks = slices.DeleteFunc(a.blocks, func(other *modelBlock) bool { return other == b })
	b.until = a.now.Add(time.Duration(a.rng.Int64N(int64(listLag))))
	a.ghosts = append(a.ghosts, *b)
}

// move begins an assignment or its end.
func (a *account) move(b *modelBlock, public string, to network.BlockStatus, from ...network.BlockStatus) {
	n := a.networks[public]
	switch {
	case n == nil || (b.ResourceID != "" && b.ResourceID != public):
		a.fault("%s of block %s, held by %q, in network %q", to, b.ID, b.ResourceID, public)
	case !slices.Contains(from, b.Status):
		a.fault("%s of block %s, which is %s", to, b.ID, b.Status)
	case to == network.Assigning && a.readNetworks()[public].IPv4Blocks() >= network.BlockLimit:
		a.fault("assignment of block %s to the full network %s", b.ID, public)
	case a.now.Before(n.until):
		a.fault("%s of block %s in network %s, which is BUSY", to, b.ID, public)
	default:
		b.Status = to
		b.ResourceID = public
		b.ResourceType = "public network"
		b.until = a.now.Add(time.Duration(5+a.rng.IntN(60)) * time.Second)
		n.until = b.until
	}
}

func (a *account) find(id string) *modelBlock {
	for _, b := range a.blocks {
		if b.ID == id {
			return b
		}
	}
	return nil
}

func (a *account) fault(format string, args ...any) {
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}

// owned are the blocks of the Service, lists or not.
func (a *account) owned() []*modelBlock {
	var owned []*modelBlock
	for _, b := range a.blocks {
		if shop.Owns(b.Block) {
			owned = append(owned, b)
		}
	}
	return owned
}
