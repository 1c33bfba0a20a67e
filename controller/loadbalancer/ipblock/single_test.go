package ipblock_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

func TestExtend(t *testing.T) {
	ours := func(b *network.Block) { b.Tags = pool.Tags() }
	described := func(text string) func(*network.Block) {
		return func(b *network.Block) { b.Description = text }
	}
	for _, test := range []struct {
		name string
		wish wanted
		view ipblock.Account
		want string
	}{
		{"no block yet", wish(), view(nil), "buy PurchaseDue "},
		{"one more", wish(), view(blocks(block("a", network.Assigned, ours))), "buy PurchaseDue "},
		{"purchase without an answer", wish(), view(blocks(block("a", network.Assigned, ours)), purchase(time.Second, "")),
			"wait PurchaseUnanswered "},
		{"purchase without an answer, block found by its nonce", wish(), view(blocks(block("a", network.Assigned, ours,
			described("… purchase n"))), purchase(time.Second, "")), "buy PurchaseDue "},
		{"purchase without an answer, another owner's block has the nonce", wish(), view(blocks(block("a",
			network.Assigned, described("… purchase n"))), purchase(time.Second, "")), "wait PurchaseUnanswered "},
		{"purchase answered, not visible", wish(),
			view(blocks(block("a", network.Assigned, ours)), purchase(time.Second, "b")), "wait BlockInvisible b"},
		{"purchase answered, only in the index", wish(), view(blocks(block("a", network.Assigned, ours)),
			purchase(time.Minute, "b"), unseen("b")), "wait BlockInvisible b"},
		{"purchase answered, visible", wish(), view(blocks(block("a", network.Assigned, ours),
			block("b", network.Creating, ours)), purchase(time.Second, "b")), "buy PurchaseDue "},
		{"purchase answered, tags on their way", wish(), view(blocks(block("b", network.Creating,
			func(b *network.Block) { b.Tags = nil })), purchase(time.Second, "b")), "wait BlockInvisible b"},
		{"purchase answered, tags taken away", wish(), view(blocks(block("b", network.Assigned,
			func(b *network.Block) { b.Tags = nil })), purchase(time.Hour, "b")), "refuse BlockRetagged b"},
		{"network full", wish(), view(nil, foreign(10)), "refuse NetworkFull "},
		{"limit reached", wish(func(w *wanted) {
			w.MaxBlocks = 1
			w.Bought = 1
		}), view(nil), "refuse TooManyBlocks "},
		{"no location", wish(func(w *wanted) { w.Location = "" }), view(nil), "refuse LocationMissing "},
		{"network not readable", wish(), view(nil, func(v *ipblock.Account) { delete(v.Networks, net1) }),
			"refuse NetworkUnusable "},
		{"one in a state that is not known", wish(), view(blocks(block("a", "resting", ours))),
			"refuse StatusNotKnown a"},
		{"one that is divided", wish(), view(blocks(block("a", network.Subnetted, ours))),
			"refuse BlockUnusable a"},
		{"a published address does not matter", wish(published("203.0.113.10"), requested("203.0.113.10")), view(nil),
			"buy PurchaseDue "},
	} {
		t.Run(test.name, func(t *testing.T) {
			step := test.wish.extend(pool, test.view)
			if diff := cmp.Diff(test.want, describeStep(step)); diff != "" {
				t.Errorf("step (-want +got):\n%s%s", diff, step.Detail)
			}
		})
	}
}

//proves:known-bugs/user-block-deleted
func TestBroughtBlocksAreNeverDeleted(t *testing.T) {
	for _, test := range []struct {
		status       network.BlockStatus
		resource     string
		assignedHere bool
		ensure       string
		release      string
	}{
		{network.Unassigned, "", false, "assign AssignmentDue a", "done blockKept a"},
		{network.Unassigned, "", true, "assign AssignmentDue a", "done blockKept a"},
		{network.Assigned, net1, false, "done BlockAssigned a", "done blockKept a"},
		{network.Assigned, net1, true, "done BlockAssigned a", "unassign UnassignmentDue a"},
		{network.Assigned, "net2", false, "refuse BlockElsewhere a", "done blockKept a"},
		{network.Assigned, "net2", true, "refuse BlockElsewhere a", "done blockKept a"},
		{network.Assigning, net1, true, "wait BlockAssigning a", "wait BlockAssigning a"},
		{network.Unassigning, net1, true, "wait BlockUnassigning a", "wait BlockUnassigning a"},
		{network.ErrorAssigning, net1, false, "refuse BlockInErrorState a", "done blockKept a"},
		{network.ErrorAssigning, net1, true, "unassign UnassignmentDue a", "unassign UnassignmentDue a"},
		{network.ErrorUnassigning, net1, true, "unassign UnassignmentDue a", "unassign UnassignmentDue a"},
		{"resting", "", true, "refuse StatusNotKnown a", "refuse StatusNotKnown a"},
		{network.Subnetted, "", true, "refuse BlockUnusable a", "done blockKept a"},
	} {
		b := block("a", test.status, in(test.resource, "public network"), func(b *network.Block) { b.Tags = nil })
		v := view(blocks(b))
		step := ipblock.EnsureBrought(v.Sightings[0], test.assignedHere, v)
		step.Address = addr("")
		if got := describeStep(step); got != test.ensure {
			t.Errorf("%s in %q, assigned here %t: ensure %s, want %s", test.status, test.resource, test.assignedHere,
				got, test.ensure)
		}
		if got := describeStep(ipblock.ReleaseBrought(v.Sightings[0], test.assignedHere, v)); got != test.release {
			t.Errorf("%s in %q, assigned here %t: release %s, want %s", test.status, test.resource, test.assignedHere,
				got, test.release)
		}
	}
}

func TestOneBlockOfAPool(t *testing.T) {
	for status, want := range map[network.BlockStatus][2]string{
		network.Creating:         {"wait BlockCreating a", "wait BlockCreating a"},
		network.Unassigned:       {"assign AssignmentDue a", "delete DeletionDue a"},
		network.Assigning:        {"wait BlockAssigning a", "wait BlockAssigning a"},
		network.Assigned:         {"done BlockAssigned a 203.0.113.10", "unassign UnassignmentDue a"},
		network.Unassigning:      {"wait BlockUnassigning a", "wait BlockUnassigning a"},
		network.ErrorAssigning:   {"unassign UnassignmentDue a", "unassign UnassignmentDue a"},
		network.ErrorUnassigning: {"unassign UnassignmentDue a", "unassign UnassignmentDue a"},
	} {
		v := view(blocks(block("a", status, func(b *network.Block) { b.Tags = pool.Tags() })))
		if got := describeStep(ipblock.EnsureBlock(v.Sightings[0], v)); got != want[0] {
			t.Errorf("%s: ensure %s, want %s", status, got, want[0])
		}
		if got := describeStep(ipblock.ReleaseBlock(v.Sightings[0], v)); got != want[1] {
			t.Errorf("%s: release %s, want %s", status, got, want[1])
		}
	}
}

// The servers that hold addresses of a block are its users, or the ledger passes them over: its assignment goes on.
func TestServersMayHoldEveryAddress(t *testing.T) {
	for status, want := range map[network.BlockStatus]string{
		network.Assigned: "done BlockAssigned a", network.Unassigned: "assign AssignmentDue a",
	} {
		v := view(blocks(block("a", status, func(b *network.Block) { b.Tags = pool.Tags() })))
		public := v.Networks[net1]
		member := network.Member{ServerID: "s"}
		for host := v.Sightings[0].Block.CIDR.Addr(); v.Sightings[0].Block.CIDR.Contains(host); host = host.Next() {
			member.IPs = append(member.IPs, host)
		}
		public.Members = []network.Member{member}
		v.Networks[net1] = public
		step := ipblock.EnsureBlock(v.Sightings[0], v)
		step.Address = addr("")
		if got := describeStep(step); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}
