package plan_test

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// What the tests have in common: a time, owners, a network, and short ways to write blocks and ledgers.
var (
	noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	shop = network.Owner{Cluster: "c1", Namespace: "shop", Name: "web"}
	pool = network.Owner{Cluster: "c1", Pool: "default"}
)

const net1 = "net1"

func addr(raw string) netip.Addr {
	if raw == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(raw)
}

func prefix(raw string) netip.Prefix {
	if raw == "" {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(raw)
}

func cidr(raw string) func(*network.Block) {
	return func(b *network.Block) { b.CIDR = prefix(raw) }
}

func block(id string, status network.BlockStatus, change ...func(*network.Block)) network.Block {
	b := network.Block{ID: id, Location: "ASH", CIDR: prefix("203.0.113.8/29"), Status: status, Tags: shop.Tags()}
	if status == network.Assigned || status == network.Assigning {
		b.ResourceID = net1
		b.ResourceType = "public network"
	}
	for _, c := range change {
		c(&b)
	}
	return b
}

func holder(name string) ipblock.Holder {
	return ipblock.Holder{Namespace: "shop", Name: name, UID: "uid-" + name}
}

// ledger29 is the ledger of 203.0.113.8/29, whose hosts are .10 to .14, with the given holders.
func ledger29(held map[string]string, change ...func(*ipblock.Ledger)) ipblock.Ledger {
	l := ipblock.NewLedger("a", prefix("203.0.113.8/29"))
	l.Held = map[netip.Addr]ipblock.Holder{}
	l.Quarantined = map[netip.Addr]ipblock.Released{}
	for address, name := range held {
		l.Held[addr(address)] = holder(name)
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

// describeStep describes a step in few words.
func describeStep(s ipblock.Step) string {
	text := fmt.Sprintf("%s %s %s", s.Action, s.Reason, s.Block.ID)
	if s.Address.IsValid() {
		text += " " + s.Address.String()
	}
	return text
}

// view is an account with a network in ASH and the given blocks.
func view(blocks []network.Block, change ...func(*ipblock.Account)) ipblock.Account {
	public := network.Network{ID: net1, Location: "ASH", VLAN: 10, Status: network.StatusReady}
	v := ipblock.Account{Now: noon, Network: network.Named{ID: net1}, Networks: map[string]network.Network{}}
	for _, b := range blocks {
		v.Sightings = append(v.Sightings, network.Sighting{Block: b})
		if b.ResourceID == net1 {
			public.Blocks = append(public.Blocks, network.ListedBlock{ID: b.ID, CIDR: b.CIDR})
		}
	}
	v.Networks[net1] = public
	for _, c := range change {
		c(&v)
	}
	return v
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
