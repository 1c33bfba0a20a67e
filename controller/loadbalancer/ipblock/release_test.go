package ipblock_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

//proves:known-bugs/two-blocks
//proves:known-bugs/stuck-block
//proves:known-bugs/wrong-network-unassigned
//proves:known-bugs/new-state
func TestRelease(t *testing.T) {
	otherNetwork := func(s network.Status) func(*ipblock.Account) {
		return func(v *ipblock.Account) { v.Networks["net2"] = network.Network{ID: "net2", Location: "SEA", Status: s} }
	}
	for _, test := range []struct {
		name string
		view ipblock.Account
		want string
	}{
		{"nothing", view(nil), "done noBlock "},
		{"creating", view(blocks(block("a", network.Creating))), "wait BlockCreating a"},
		{"unassigned", view(blocks(block("a", network.Unassigned))), "delete DeletionDue a"},
		{"unassigned, network not readable", view(blocks(block("a", network.Unassigned)),
			func(v *ipblock.Account) { delete(v.Networks, net1) }), "delete DeletionDue a"},
		{"assigning", view(blocks(block("a", network.Assigning))), "wait BlockAssigning a"},
		{"assigned", view(blocks(block("a", network.Assigned))), "unassign UnassignmentDue a net1"},
		{"assigned, network busy", view(blocks(block("a", network.Assigned)), status(network.StatusBusy)),
			"wait NetworkChanging a net1"},
		{"assigned, network being deleted", view(blocks(block("a", network.Assigned)), status(network.StatusDeleting)),
			"wait NetworkChanging a net1"},
		{"assigned, network in error", view(blocks(block("a", network.Assigned)), status(network.StatusError)),
			"refuse NetworkUnusable a"},
		{"assigned, network in a state that is not known", view(blocks(block("a", network.Assigned)), status("FROZEN")),
			"refuse NetworkUnusable a"},
		{"assigned, network not readable", view(blocks(block("a", network.Assigned)),
			func(v *ipblock.Account) { delete(v.Networks, net1) }), "wait NetworkUnreadable a net1"},
		{"assigned to another network", view(blocks(block("a", network.Assigned, in("net2", "public network"))),
			otherNetwork(network.StatusReady)), "unassign UnassignmentDue a net2"},
		{"assigned to another network, which is busy", view(blocks(block("a", network.Assigned,
			in("net2", "public network"))), otherNetwork(network.StatusBusy)), "wait NetworkChanging a net2"},
		{"assigned to a server", view(blocks(block("a", network.Assigned, in("s1", "server")))),
			"refuse BlockElsewhere a"},
		{"assigned to something new", view(blocks(block("a", network.Assigned, in("x", "router")))),
			"refuse BlockElsewhere a"},
		{"a member holds an address", view(blocks(block("a", network.Assigned)), publicNetwork(func(n *network.Network) {
			n.Members = []network.Member{{ServerID: "s1", IPs: []netip.Addr{addr("198.51.100.2"),
				addr("203.0.113.11")}}}
		})), "refuse MemberHoldsAddress a"},
		{"unassigning", view(blocks(block("a", network.Unassigning))), "wait BlockUnassigning a"},
		{"error assigning", view(blocks(block("a", network.ErrorAssigning, in(net1, "public network")))),
			"unassign UnassignmentDue a net1"},
		{"error assigning, no resource reported, another network lists it",
			view(blocks(block("a", network.ErrorAssigning)), func(v *ipblock.Account) {
				v.Networks["net2"] = network.Network{ID: "net2", Status: network.StatusReady,
					Blocks: []network.ListedBlock{{ID: "a"}}}
			}), "unassign UnassignmentDue a net2"},
		{"error assigning, to an unknown network", view(blocks(block("a", network.ErrorAssigning))),
			"unassign UnassignmentDue a net1"},
		{"error unassigning", view(blocks(block("a", network.ErrorUnassigning, in(net1, "public network")))),
			"unassign UnassignmentDue a net1"},
		{"a word that is not known", view(blocks(block("a", "resting"))), "refuse StatusNotKnown a"},
		{"divided", view(blocks(block("a", network.Subnetted))), "refuse BlockUnusable a"},
		{"divided and retained", view(blocks(block("a", network.Subnetted, retained))), "done blockKept a"},
		{"a part of a divided block", view(blocks(part("b"))), "done noBlock "},
		{"managed by phoenixNAP", view(blocks(managed("a"))), "done noBlock "},
		{"listed but not readable", view(blocks(block("a", network.Unassigned)), hidden), "wait DeletionUnverified a"},
		{"in the network, but not readable", view(blocks(block("a", network.Assigned)), hidden), "wait BlockInvisible a"},
		{"purchase answered, block only in the index", view(nil, purchase(time.Minute, "a"), unseen("a")),
			"wait BlockInvisible a"},
		{"purchase answered long ago, block only in the index", view(nil, purchase(time.Hour, "a"), unseen("a")),
			"done noBlock "},
		{"purchase answered long ago, block only in the network", view(nil, purchase(48*time.Hour, "a"), placed("a")),
			"wait BlockInvisible a"},
		{"purchase without an answer, a block only in the index", view(nil, purchase(time.Minute, ""), unseen("b")),
			"wait PurchaseUnanswered "},
		{"brought by the account's owner",
			view(blocks(block("a", network.Unassigned, func(b *network.Block) { b.BringYourOwn = true }))),
			"done noBlock "},
		{"another cluster's", view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Tags = with(shop.Tags(), contract.TagCluster, "c2") }))), "done noBlock "},
		{"v1's", view(blocks(block("a", network.Unassigned, func(b *network.Block) { b.Tags = v1Tags() }))),
			"delete DeletionDue a"},
		{"purchase without an answer", view(nil, purchase(59*time.Second, "")), "wait PurchaseUnanswered "},
		{"purchase without an answer, long ago", view(nil, purchase(time.Minute, "")), "done noBlock "},
		{"purchase answered, block gone", view(nil, purchase(time.Second, "a")), "done noBlock "},
		{"purchase answered, tags on their way", view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Tags = nil })), purchase(time.Second, "a")), "wait BlockInvisible a"},
		{"purchase answered, tags taken away", view(blocks(block("a", network.Unassigned,
			func(b *network.Block) { b.Tags = nil })), purchase(time.Hour, "a")), "done noBlock "},
		{"retained, assigned", view(blocks(block("a", network.Assigned, retained))), "unassign UnassignmentDue a net1"},
		{"retained, unassigning", view(blocks(block("a", network.Unassigning, retained))), "wait BlockUnassigning a"},
		{"retained, in error", view(blocks(block("a", network.ErrorAssigning, in(net1, "public network"), retained))),
			"unassign UnassignmentDue a net1"},
		{"retained, unassigned", view(blocks(block("a", network.Unassigned, retained))), "done blockKept a"},
		{"retained, deleted by a person a moment ago", view(blocks(block("a", network.Unassigned, retained)), hidden),
			"done blockKept a"},
		{"retained, in the network, but not readable", view(blocks(block("a", network.Assigned, retained)), hidden),
			"wait BlockInvisible a"},
		{"one retained, one not", view(blocks(block("a", network.Unassigned, retained), block("b", "resting"))),
			"refuse StatusNotKnown b; done blockKept a"},
		{
			"one that is stuck does not keep the others", view(blocks(
				block("a", network.ErrorUnassigning, in(net1, "public network")), block("b", "resting"),
				block("c", network.Unassigning), block("d", network.Assigned), block("e", network.Unassigned))),
			"delete DeletionDue e; unassign UnassignmentDue d net1; unassign UnassignmentDue a net1; wait " +
				"BlockUnassigning c; refuse StatusNotKnown b",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, step := range ipblock.Release(shop, test.view) {
				text := describeStep(step)
				if step.Network != "" {
					text += " " + step.Network
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDuplicatesLeaveTheKeptBlock(t *testing.T) {
	v := view(blocks(block("a", network.Unassigned), block("b", network.Assigned, cidr("203.0.113.16/29")),
		block("c", network.Assigned, cidr("203.0.113.24/29"))))
	var got []string
	for _, step := range wish(published("203.0.113.26")).duplicates(shop, v) {
		got = append(got, describeStep(step))
	}
	if diff := cmp.Diff([]string{"delete DeletionDue a", "unassign UnassignmentDue b"}, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if got := wish().duplicates(shop, view(blocks(block("a",
		network.Assigned)))); len(got) != 0 {
		t.Errorf("a single block has duplicates: %v", got)
	}
}

func TestDuplicatesThatAreRetainedStay(t *testing.T) {
	w := wish(published("203.0.113.10"))
	kept := block("a", network.Assigned)
	for status, want := range map[network.BlockStatus]string{
		network.Assigned: "unassign UnassignmentDue b", network.Unassigned: "",
	} {
		v := view(blocks(kept, block("b", status, cidr("203.0.113.16/29"), retained)))
		var got []string
		for _, step := range w.duplicates(shop, v) {
			got = append(got, describeStep(step))
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: %v, want %q", status, got, want)
		}
	}
}

// TestRetag: whether a block is retained is for its Service to say; a duplicate is not retained beside it.
func TestRetag(t *testing.T) {
	plain := block("a", network.Assigned)
	other := block("b", network.Unassigned, cidr("203.0.113.16/29"))
	for _, test := range []struct {
		name   string
		view   ipblock.Account
		retain bool
		want   string
	}{
		{"nothing there", view(nil), true, ""},
		{"to be retained", view(blocks(plain)), true, "a"},
		{"retained", view(blocks(block("a", network.Assigned, retained))), true, ""},
		{"no longer", view(blocks(block("a", network.Assigned, retained))), false, "a"},
		{"never", view(blocks(plain)), false, ""},
		{"the kept one", view(blocks(plain, other)), true, "a"},
		{"the duplicate stays as it is", view(blocks(block("a", network.Assigned, retained), other)), true, ""},
		{"the duplicate no longer", view(blocks(plain, block("b", network.Unassigned, cidr("203.0.113.16/29"), retained))),
			false, "b"},
		{"deleted a moment ago", view(blocks(plain), hidden), true, ""},
		{"another owner's", view(blocks(block("a", network.Assigned, func(b *network.Block) { b.Tags = nil }))), true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, tags, due := wish(published("203.0.113.10")).retag(shop, test.view, test.retain)
			if got.ID != test.want || due != (test.want != "") {
				t.Fatalf("block %q, due %t; want %q", got.ID, due, test.want)
			}
			if due && network.Retained(network.Block{Tags: tags}) != test.retain {
				t.Errorf("tags are %v", tags)
			}
		})
	}
}
