package ipblock_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const net1 = "net1"

// wanted is what a Service asks for, what it has, and what is known of the network.
type wanted struct {
	ipblock.Request
	ipblock.Slots
	Published netip.Addr
}

// in is the account as the Service sees it.
func (w wanted) in(account ipblock.Account) ipblock.Account {
	account.Slots = w.Slots
	account.Published = w.Published
	return account
}

func (w wanted) ensure(owner network.Owner, account ipblock.Account) ipblock.Step {
	return ipblock.Ensure(owner, w.Request, w.in(account))
}

func (w wanted) extend(owner network.Owner, account ipblock.Account) ipblock.Step {
	return ipblock.Extend(owner, w.Request, w.in(account))
}

func (w wanted) duplicates(owner network.Owner, account ipblock.Account) []ipblock.Step {
	return ipblock.Duplicates(owner, w.Request, w.in(account))
}

func (w wanted) retag(owner network.Owner, account ipblock.Account, retain bool) (network.Block, map[string]string,
	bool) {
	return ipblock.Retag(owner, w.Request, w.in(account), retain)
}

// request is the request for an address of a pool at noon in the network of the tests.
func (w wanted) request() ipblock.AddressRequest {
	return ipblock.AddressRequest{Request: w.Request, Published: w.Published, Ask: ipblock.Ask{Now: noon},
		Network: network.Named{ID: net1}}
}

// wish is a Service in ASH without special wishes.
func wish(change ...func(*wanted)) wanted {
	w := wanted{Request: ipblock.Request{Location: "ASH", LocationSource: "the option location"}}
	for _, c := range change {
		c(&w)
	}
	return w
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

// part is a part of a divided block of the account, with the tags of that.
func part(id string) network.Block {
	return block(id, network.Unassigned, func(b *network.Block) {
		b.ParentID = "a"
		b.Part = true
	})
}

// managed is a block that phoenixNAP manages, with tags of ours.
func managed(id string) network.Block {
	return block(id, network.Unassigned, func(b *network.Block) { b.SystemManaged = true })
}

func in(resource, kind string) func(*network.Block) {
	return func(b *network.Block) {
		b.ResourceID = resource
		b.ResourceType = kind
	}
}

func cidr(raw string) func(*network.Block) {
	return func(b *network.Block) { b.CIDR = prefix(raw) }
}

func purchase(age time.Duration, blockID string) func(*ipblock.Account) {
	return func(v *ipblock.Account) {
		v.Purchase = &ipblock.Purchase{Nonce: "n", Time: noon.Add(-age), BlockID: blockID}
	}
}

func publicNetwork(change func(*network.Network)) func(*ipblock.Account) {
	return func(v *ipblock.Account) {
		n := v.Networks[net1]
		change(&n)
		v.Networks[net1] = n
	}
}

func status(s network.Status) func(*ipblock.Account) {
	return publicNetwork(func(n *network.Network) { n.Status = s })
}

func foreign(count int) func(*ipblock.Account) {
	return publicNetwork(func(n *network.Network) {
		for i := range count {
			n.Blocks = append(n.Blocks, network.ListedBlock{ID: fmt.Sprint("f", i), CIDR: prefix("198.51.100.0/29")})
		}
	})
}

func published(raw string) func(*wanted) {
	return func(w *wanted) { w.Published = addr(raw) }
}

func requested(raw string) func(*wanted) {
	return func(w *wanted) { w.Requested = addr(raw) }
}

func replace(w *wanted) { w.Replace = true }

func retained(b *network.Block) { b.Tags = with(b.Tags, contract.TagRetain, contract.TagTrue) }

func demanded(size ipblock.Size) func(*wanted) {
	return func(w *wanted) {
		w.Size = size
		w.SizeSource = "the annotation phoenixnap.com/ip-block-size"
		w.SizeDemanded = true
	}
}

func hidden(v *ipblock.Account) { v.Sightings[0].Hidden = true }

// unseen are blocks that only the index names.
func unseen(ids ...string) func(*ipblock.Account) { return func(v *ipblock.Account) { v.Unseen = ids } }

// placed is a block that the network has.
func placed(id string) func(*ipblock.Account) {
	return publicNetwork(func(n *network.Network) {
		n.Blocks = append(n.Blocks, network.ListedBlock{ID: id, CIDR: prefix("203.0.113.8/29")})
	})
}

func blocks(b ...network.Block) []network.Block { return b }

//proves:known-bugs/disagreeing-views
//proves:known-bugs/new-state
//proves:service-changes/location
func TestEnsure(t *testing.T) {
	for _, test := range []struct {
		name string
		wish wanted
		view ipblock.Account
		// want is action, reason and block ID, and for Done the address.
		want string
	}{
		{"nothing yet", wish(), view(nil), "buy PurchaseDue "},
		{"nothing yet, network busy", wish(), view(nil, status(network.StatusBusy)), "buy PurchaseDue "},
		{"creating", wish(), view(blocks(block("a", network.Creating))), "wait BlockCreating a"},
		{"unassigned", wish(), view(blocks(block("a", network.Unassigned))), "assign AssignmentDue a"},
		{"unassigned, network busy", wish(), view(blocks(block("a", network.Unassigned)), status(network.StatusBusy)),
			"wait NetworkChanging a"},
		{"unassigned, network lists it already", wish(),
			view(blocks(block("a", network.Unassigned)), publicNetwork(func(n *network.Network) {
				n.Blocks = append(n.Blocks, network.ListedBlock{ID: "a"})
			})), "wait BlockAssigning a"},
		{"assigning", wish(), view(blocks(block("a", network.Assigning))), "wait BlockAssigning a"},
		{"assigning, resource not reported yet", wish(), view(blocks(block("a", network.Assigning, in("", "")))),
			"wait BlockAssigning a"},
		{"assigned", wish(), view(blocks(block("a", network.Assigned))), "done BlockAssigned a 203.0.113.10"},
		{"assigned, location in small letters", wish(func(w *wanted) { w.Location = "ash" }),
			view(blocks(block("a", network.Assigned))), "done BlockAssigned a 203.0.113.10"},
		{"assigned, resource never reported, listed", wish(),
			view(blocks(block("a", network.Assigned, in("", ""))), publicNetwork(func(n *network.Network) {
				n.Blocks = append(n.Blocks, network.ListedBlock{ID: "a"})
			})), "done BlockAssigned a 203.0.113.10"},
		{"assigned, to an unknown resource", wish(), view(blocks(block("a", network.Assigned, in("", "")))),
			"wait BlockAssigning a"},
		{"unassigning", wish(), view(blocks(block("a", network.Unassigning))), "wait BlockUnassigning a"},
		{"error assigning", wish(), view(blocks(block("a", network.ErrorAssigning))), "unassign UnassignmentDue a"},
		{"error unassigning", wish(), view(blocks(block("a", network.ErrorUnassigning, in(net1, "public network")))),
			"unassign UnassignmentDue a"},
		{"a word that is not known", wish(), view(blocks(block("a", "resting"))), "refuse StatusNotKnown a"},
		{"divided", wish(), view(blocks(block("a", network.Subnetted))), "refuse BlockUnusable a"},
		{"divided, another is assigned", wish(), view(blocks(block("a", network.Subnetted), block("b", network.Assigned))),
			"done BlockAssigned b 203.0.113.10"},
		{"divided, a part has the tags", wish(), view(blocks(block("a", network.Subnetted), part("b"))),
			"refuse BlockUnusable a"},
		{"only a part has the tags", wish(), view(blocks(part("b"))), "buy PurchaseDue "},
		{"managed by phoenixNAP", wish(), view(blocks(managed("a"))), "buy PurchaseDue "},
		{"bought, managed by phoenixNAP since", wish(), view(blocks(managed("a")), purchase(time.Hour, "a")),
			"refuse BlockUnusable a"},
		{"a block from a block of phoenixNAP's own", wish(), view(blocks(block("a", network.Assigned,
			func(b *network.Block) { b.ParentID = "p" }))), "done BlockAssigned a 203.0.113.10"},
		{"in the network, but not readable", wish(), view(blocks(block("a", network.Assigned)), hidden),
			"wait BlockInvisible a"},
		{"listed but not readable", wish(), view(blocks(block("a", network.Unassigned)), hidden),
			"wait DeletionUnverified a"},
		{"v1's block keeps its address", wish(requested("203.0.113.10")), view(blocks(block("a", network.Assigned,
			func(b *network.Block) { b.Tags = v1Tags() }))), "done BlockAssigned a 203.0.113.10"},

		{"purchase without an answer", wish(), view(nil, purchase(59*time.Second, "")), "wait PurchaseUnanswered "},
		{"purchase without an answer, long ago", wish(), view(nil, purchase(60*time.Second, "")), "buy PurchaseDue "},
		{"purchase of a clock ahead", wish(), view(nil, purchase(-10*time.Second, "")), "wait PurchaseUnanswered "},
		{"purchase without an answer, block found", wish(),
			view(blocks(block("a", network.Unassigned)), purchase(time.Second, "")), "assign AssignmentDue a"},
		{"purchase answered, block not visible", wish(), view(nil, purchase(time.Second, "a")),
			"wait BlockInvisible a"},
		{"purchase answered, block gone", wish(), view(nil, purchase(time.Minute, "a")), "buy PurchaseDue "},
		{"purchase answered, block only in the index", wish(), view(nil, purchase(time.Minute, "a"), unseen("a")),
			"wait BlockInvisible a"},
		{"purchase answered long ago, block only in the index", wish(), view(nil, purchase(time.Hour, "a"),
			unseen("a")), "buy PurchaseDue "},
		{"purchase answered, another block only in the index", wish(), view(nil, purchase(time.Minute, "a"),
			unseen("b")), "buy PurchaseDue "},
		{"purchase answered long ago, block only in the network", wish(published("203.0.113.10"), replace),
			view(nil, purchase(48*time.Hour, "a"), placed("a")), "wait BlockInvisible a"},
		{"purchase without an answer, a block only in the index", wish(), view(nil, purchase(time.Minute, ""),
			unseen("b")), "wait PurchaseUnanswered "},
		{"purchase without an answer long ago, a block only in the index", wish(), view(nil, purchase(time.Hour, ""),
			unseen("b")), "buy PurchaseDue "},
		{"block bought, tags on their way", wish(), view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Tags = nil })), purchase(time.Second, "a")), "wait BlockInvisible a"},
		{"block bought, tags taken away", wish(), view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Tags = nil })), purchase(time.Hour, "a")), "refuse BlockRetagged a"},

		{"no location", wish(func(w *wanted) { w.Location = "" }), view(nil), "refuse LocationMissing "},
		{"location of another site", wish(func(w *wanted) { w.Location = "SEA" }), view(nil),
			"refuse LocationMismatch "},
		{"block in another site", wish(), view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Location = "SEA" }))), "refuse LocationMismatch a"},
		{"network full", wish(), view(nil, foreign(10)), "refuse NetworkFull "},
		{"network about to be full", wish(func(w *wanted) { w.Reserved = 2 }), view(nil, foreign(8)),
			"refuse NetworkFull "},
		{"one place left", wish(func(w *wanted) { w.Reserved = 1 }), view(nil, foreign(8)), "buy PurchaseDue "},
		{"another block has no place yet", wish(func(w *wanted) { w.Coming = true }), view(nil),
			"wait NetworkChanging "},
		{"another block has no place yet, block there", wish(func(w *wanted) { w.Coming = true }),
			view(blocks(block("a", network.Unassigned))), "assign AssignmentDue a"},
		{"network full, block bought", wish(), view(blocks(block("a", network.Unassigned)), foreign(10)),
			"refuse NetworkFull a"},
		{"network full of IPv6", wish(), view(nil, foreign(9), publicNetwork(func(n *network.Network) {
			n.Blocks = append(n.Blocks, network.ListedBlock{ID: "six", CIDR: prefix("2001:db8::/64")})
		})), "buy PurchaseDue "},
		{"limit reached", wish(func(w *wanted) {
			w.MaxBlocks = 3
			w.Bought = 3
		}), view(nil), "refuse TooManyBlocks "},
		{"limit not reached", wish(func(w *wanted) {
			w.MaxBlocks = 3
			w.Bought = 2
		}), view(nil), "buy PurchaseDue "},
		{"limit reached, block there", wish(func(w *wanted) {
			w.MaxBlocks = 3
			w.Bought = 3
		}), view(blocks(block("a", network.Unassigned))), "assign AssignmentDue a"},
		{"network in error", wish(), view(nil, status(network.StatusError)), "refuse NetworkUnusable "},
		{"network being deleted", wish(), view(blocks(block("a", network.Unassigned)), status(network.StatusDeleting)),
			"refuse NetworkUnusable a"},
		{"network in a state that is not known", wish(), view(nil, status("FROZEN")), "refuse NetworkUnusable "},
		{"network not readable", wish(), view(nil, func(v *ipblock.Account) { delete(v.Networks, net1) }),
			"refuse NetworkUnusable "},

		{"user's address, no block", wish(requested("192.0.2.1")), view(nil), "refuse AddressRefused "},
		{"user's address in the block", wish(requested("203.0.113.13")), view(blocks(block("a", network.Assigned))),
			"done BlockAssigned a 203.0.113.13"},
		{"user's address is the gateway", wish(requested("203.0.113.9")), view(blocks(block("a", network.Assigned))),
			"refuse AddressRefused a"},
		{"user's address is the broadcast", wish(requested("203.0.113.15")), view(blocks(block("a", network.Unassigned))),
			"refuse AddressRefused a"},
		{"user's address is a server's", wish(requested("203.0.113.13")), view(blocks(block("a", network.Assigned)),
			publicNetwork(func(n *network.Network) {
				n.Members = []network.Member{{ServerID: "s1", IPs: []netip.Addr{addr("203.0.113.13")}}}
			})), "refuse AddressRefused a"},
		{"user's address elsewhere", wish(requested("192.0.2.1"), published("203.0.113.10")),
			view(blocks(block("a", network.Assigned))), "refuse AddressRefused a"},
		{"published address stays", wish(requested("203.0.113.12"), published("203.0.113.12")),
			view(blocks(block("a", network.Assigned))), "done BlockAssigned a 203.0.113.12"},
		{"published address, block lost", wish(requested("203.0.113.10"), published("203.0.113.10")), view(nil),
			"refuse BlockLost "},
		{"published address, block unassigned by a person", wish(published("203.0.113.10")),
			view(blocks(block("a", network.Unassigned))), "assign AssignmentDue a"},
		{"block of two addresses", wish(), view(blocks(block("a", network.Unassigned, cidr("203.0.113.8/31")))),
			"assign AssignmentDue a"},
		{"block of IPv6", wish(), view(blocks(block("a", network.Unassigned, cidr("2001:db8::/64")))),
			"refuse BlockUnusable a"},
		{"block without addresses", wish(), view(blocks(block("a", network.Unassigned, cidr("")))),
			"refuse BlockUnusable a"},

		{"published address, block lost, to be replaced", wish(published("203.0.113.10"), replace), view(nil),
			"buy PurchaseDue "},
		{"published address, block lost, to be replaced, tags taken away", wish(published("203.0.113.10"), replace),
			view(blocks(block("a", network.Assigned, func(b *network.Block) {
				b.Tags = nil
			})), purchase(time.Hour, "a")), "refuse BlockRetagged a"},
		{"published address, block lost, to be replaced, address demanded",
			wish(published("203.0.113.10"), requested("203.0.113.10"), replace), view(nil), "refuse AddressRefused "},
		{"the size that it has", wish(demanded(29)), view(blocks(block("a", network.Assigned))),
			"done BlockAssigned a 203.0.113.10"},
		{"another size", wish(demanded(28)), view(blocks(block("a", network.Assigned))),
			"refuse SizeMismatch a 203.0.113.10"},
		{"another size, block not on the network", wish(demanded(28)), view(blocks(block("a", network.Unassigned))),
			"assign AssignmentDue a"},
		{"another size, by an option", wish(func(w *wanted) { w.Size = 28 }),
			view(blocks(block("a", network.Assigned))), "done BlockAssigned a 203.0.113.10"},
		{"another location", wish(func(w *wanted) { w.Location = "SEA" }), view(blocks(block("a", network.Assigned))),
			"refuse LocationMismatch a 203.0.113.10"},
		{"another location, block not on the network", wish(func(w *wanted) { w.Location = "SEA" }),
			view(blocks(block("a", network.Unassigned))), "assign AssignmentDue a"},
		{"no location, block there", wish(func(w *wanted) { w.Location = "" }),
			view(blocks(block("a", network.Assigned))), "done BlockAssigned a 203.0.113.10"},
		{"retained by the Service before", wish(), view(blocks(block("a", network.Unassigned, retained))),
			"assign AssignmentDue a"},

		{"assigned to another network", wish(), view(blocks(block("a", network.Assigned, in("net2", "public network")))),
			"refuse BlockElsewhere a"},
		{"assigned to a server", wish(), view(blocks(block("a", network.Assigned, in("s1", "server")))),
			"refuse BlockElsewhere a"},
		{"leaving another network", wish(), view(blocks(block("a", network.Unassigning, in("net2", "public network")))),
			"wait BlockUnassigning a"},

		{"two: the published one is kept", wish(published("203.0.113.18")), view(blocks(block("a", network.Assigned),
			block("b", network.Unassigned, cidr("203.0.113.16/29")))), "assign AssignmentDue b"},
		{"two: the user's one is kept", wish(requested("203.0.113.18")), view(blocks(block("a", network.Assigned),
			block("b", network.Unassigned, cidr("203.0.113.16/29")))), "assign AssignmentDue b"},
		{"two: the assigned one is kept", wish(), view(blocks(block("a", network.Unassigned),
			block("b", network.Assigned, cidr("203.0.113.16/29")))), "done BlockAssigned b 203.0.113.18"},
		{"two: the retained one is kept", wish(), view(blocks(block("a", network.Assigned),
			block("b", network.Unassigned, cidr("203.0.113.16/29"), retained))), "assign AssignmentDue b"},
		{"two: the first one is kept", wish(), view(blocks(block("b", network.Unassigned), block("a", network.Unassigned))),
			"assign AssignmentDue a"},
		{"two: the other one takes the last place", wish(published("203.0.113.18")),
			view(blocks(block("a", network.Assigned), block("b", network.Unassigned, cidr("203.0.113.16/29"))),
				foreign(9)),
			"unassign UnassignmentDue a"},
		{"the same block twice", wish(), view(blocks(block("a", network.Unassigned), block("a", network.Unassigned))),
			"assign AssignmentDue a"},
		{"another owner's block is not taken", wish(), view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Tags = with(shop.Tags(), contract.TagCluster, "c2") }))), "buy PurchaseDue "},
	} {
		t.Run(test.name, func(t *testing.T) {
			step := test.wish.ensure(shop, test.view)
			if diff := cmp.Diff(test.want, describeStep(step)); diff != "" {
				t.Errorf("step (-want +got):\n%s%s", diff, step.Detail)
			}
			if (step.Action == ipblock.Refuse) != (step.Detail != "") {
				t.Errorf("%s with detail %q", step.Action, step.Detail)
			}
		})
	}
}

// describeStep describes a step in few words.
func describeStep(s ipblock.Step) string {
	text := fmt.Sprintf("%s %s %s", s.Action, s.Reason, s.Block.ID)
	if s.Address.IsValid() {
		text += " " + s.Address.String()
	}
	return text
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, test := range []struct {
		step ipblock.Step
		want string
	}{
		{
			wish(func(w *wanted) { w.Location = "SEA" }).ensure(shop, view(nil)),
			"location SEA is not where public network net1 is; set the option location to ASH",
		},
		{
			wish(func(w *wanted) {
				w.Location = ""
				w.LocationSource = "the annotation phoenixnap.com/ip-location of the Service or the option location " +
					"(PNAP_LOCATION)"
			}).ensure(shop, view(nil)),
			"no location to buy an IP block in; set the annotation phoenixnap.com/ip-location of the Service or the " +
				"option location (PNAP_LOCATION)",
		},
		{
			wish(demanded(28)).ensure(shop, view(blocks(block("a",
				network.Assigned)))),
			"IP block a (203.0.113.8/29) of this Service is a /29, not a /28; that cannot be changed in place: set " +
				"the annotation phoenixnap.com/ip-block-size to /29, or delete the Service and create it again",
		},
		{
			wish(published("203.0.113.10")).ensure(shop, view(nil)),
			`the IP block of address 203.0.113.10 is gone from the account; for a new address set the annotation phoenixnap.com/ip-replace to "true", or create the Service again without an address`,
		},
		{
			wish(requested("192.0.2.1"),
				func(w *wanted) { w.RequestedSource = "the annotation phoenixnap.com/requested-ip" },
			).ensure(shop, view(nil)),
			"the annotation phoenixnap.com/requested-ip 192.0.2.1 lies in no IP block of this Service; clear it to " +
				"get an address of a new block",
		},
		{
			wish().ensure(shop, view(nil, foreign(10))),
			"public network net1 has room for 10 IPv4 blocks and all are taken or about to be; release one, or use " +
				"another network",
		},
		{
			wish().ensure(shop, view(blocks(block("a", "resting")))),
			`IP block a (203.0.113.8/29) is in state "resting", which is not known; look it up in the phoenixNAP portal`,
		},
		{
			wish().ensure(shop, view(blocks(block("a", network.Subnetted)))),
			"IP block a (203.0.113.8/29) is divided into smaller ones (status subnetted) and cannot be assigned " +
				"itself; " +
				"name an IPBlock of one of these instead, delete them in the phoenixNAP portal, or remove the tags of " +
				"this one if it " + "serves something else now",
		},
	} {
		if diff := cmp.Diff(test.want, test.step.Detail); diff != "" {
			t.Errorf("sentence (-want +got):\n%s", diff)
		}
	}
}
