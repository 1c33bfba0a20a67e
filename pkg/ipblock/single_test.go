package ipblock_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

func TestExtend(t *testing.T) {
	ours := func(b *ipblock.Block) { b.Tags = pool.Tags() }
	described := func(text string) func(*ipblock.Block) {
		return func(b *ipblock.Block) { b.Description = text }
	}
	for _, test := range []struct {
		name string
		wish ipblock.Wish
		view ipblock.View
		want string
	}{
		{"no block yet", wish(), view(nil), "buy PurchaseDue "},
		{"one more", wish(), view(blocks(block("a", ipblock.Assigned, ours))), "buy PurchaseDue "},
		{"purchase without an answer", wish(), view(blocks(block("a", ipblock.Assigned, ours)), purchase(time.Second, "")), "wait PurchaseUnanswered "},
		{"purchase without an answer, block found by its nonce", wish(), view(blocks(block("a", ipblock.Assigned, ours, described("… purchase n"))), purchase(time.Second, "")), "buy PurchaseDue "},
		{"purchase without an answer, somebody else's block bears the nonce", wish(), view(blocks(block("a", ipblock.Assigned, described("… purchase n"))), purchase(time.Second, "")), "wait PurchaseUnanswered "},
		{"purchase answered, not visible", wish(), view(blocks(block("a", ipblock.Assigned, ours)), purchase(time.Second, "b")), "wait BlockInvisible b"},
		{"purchase answered, visible", wish(), view(blocks(block("a", ipblock.Assigned, ours), block("b", ipblock.Creating, ours)), purchase(time.Second, "b")), "buy PurchaseDue "},
		{"purchase answered, tags on their way", wish(), view(blocks(block("b", ipblock.Creating, func(b *ipblock.Block) { b.Tags = nil })), purchase(time.Second, "b")), "wait BlockInvisible b"},
		{"purchase answered, tags taken away", wish(), view(blocks(block("b", ipblock.Assigned, func(b *ipblock.Block) { b.Tags = nil })), purchase(time.Hour, "b")), "refuse BlockRetagged b"},
		{"network full", wish(), view(nil, foreign(10)), "refuse NetworkFull "},
		{"limit reached", wish(func(w *ipblock.Wish) { w.MaxBlocks, w.Bought = 1, 1 }), view(nil), "refuse TooManyBlocks "},
		{"no location", wish(func(w *ipblock.Wish) { w.Location = "" }), view(nil), "refuse LocationMissing "},
		{"network not readable", wish(), view(nil, func(v *ipblock.View) { delete(v.Networks, net1) }), "refuse NetworkUnusable "},
		{"a published address does not matter", wish(published("203.0.113.10"), requested("203.0.113.10")), view(nil), "buy PurchaseDue "},
	} {
		t.Run(test.name, func(t *testing.T) {
			step := ipblock.Extend(pool, test.wish, test.view)
			if diff := cmp.Diff(test.want, tell(step)); diff != "" {
				t.Errorf("step (-want +got):\n%s%s", diff, step.Detail)
			}
		})
	}
}

func TestBroughtBlocksAreNeverDeleted(t *testing.T) {
	for _, test := range []struct {
		status       ipblock.Status
		resource     string
		assignedHere bool
		ensure       string
		release      string
	}{
		{ipblock.Unassigned, "", false, "assign AssignmentDue a", "done BlockKept a"},
		{ipblock.Unassigned, "", true, "assign AssignmentDue a", "done BlockKept a"},
		{ipblock.Assigned, net1, false, "done BlockAssigned a", "done BlockKept a"},
		{ipblock.Assigned, net1, true, "done BlockAssigned a", "unassign UnassignmentDue a"},
		{ipblock.Assigned, "net2", false, "refuse BlockElsewhere a", "done BlockKept a"},
		{ipblock.Assigned, "net2", true, "refuse BlockElsewhere a", "done BlockKept a"},
		{ipblock.Assigning, net1, true, "wait BlockAssigning a", "wait BlockAssigning a"},
		{ipblock.Unassigning, net1, true, "wait BlockUnassigning a", "wait BlockUnassigning a"},
		{ipblock.ErrorAssigning, net1, false, "refuse BlockInErrorState a", "done BlockKept a"},
		{ipblock.ErrorAssigning, net1, true, "unassign UnassignmentDue a", "unassign UnassignmentDue a"},
		{ipblock.ErrorUnassigning, net1, true, "unassign UnassignmentDue a", "unassign UnassignmentDue a"},
		{"subnetted", "", true, "refuse StatusNotKnown a", "refuse StatusNotKnown a"},
	} {
		b := block("a", test.status, in(test.resource, "public network"), func(b *ipblock.Block) { b.Tags = nil })
		v := view(blocks(b))
		step := ipblock.EnsureBrought(v.Sightings[0], test.assignedHere, v)
		step.Address = addr("")
		if got := tell(step); got != test.ensure {
			t.Errorf("%s in %q, assigned here %t: ensure %s, want %s", test.status, test.resource, test.assignedHere, got, test.ensure)
		}
		if got := tell(ipblock.ReleaseBrought(v.Sightings[0], test.assignedHere, v)); got != test.release {
			t.Errorf("%s in %q, assigned here %t: release %s, want %s", test.status, test.resource, test.assignedHere, got, test.release)
		}
	}
}

func TestOneBlockOfAPool(t *testing.T) {
	for status, want := range map[ipblock.Status][2]string{
		ipblock.Creating:         {"wait BlockCreating a", "wait BlockCreating a"},
		ipblock.Unassigned:       {"assign AssignmentDue a", "delete DeletionDue a"},
		ipblock.Assigning:        {"wait BlockAssigning a", "wait BlockAssigning a"},
		ipblock.Assigned:         {"done BlockAssigned a 203.0.113.10", "unassign UnassignmentDue a"},
		ipblock.Unassigning:      {"wait BlockUnassigning a", "wait BlockUnassigning a"},
		ipblock.ErrorAssigning:   {"unassign UnassignmentDue a", "unassign UnassignmentDue a"},
		ipblock.ErrorUnassigning: {"unassign UnassignmentDue a", "unassign UnassignmentDue a"},
	} {
		v := view(blocks(block("a", status, func(b *ipblock.Block) { b.Tags = pool.Tags() })))
		if got := tell(ipblock.EnsureBlock(v.Sightings[0], v)); got != want[0] {
			t.Errorf("%s: ensure %s, want %s", status, got, want[0])
		}
		if got := tell(ipblock.ReleaseBlock(v.Sightings[0], v)); got != want[1] {
			t.Errorf("%s: release %s, want %s", status, got, want[1])
		}
	}
}

// The servers that hold addresses of a block are its users, or the ledger passes them over: its assignment goes on.
func TestServersMayHoldEveryAddress(t *testing.T) {
	for status, want := range map[ipblock.Status]string{
		ipblock.Assigned: "done BlockAssigned a", ipblock.Unassigned: "assign AssignmentDue a",
	} {
		v := view(blocks(block("a", status, func(b *ipblock.Block) { b.Tags = pool.Tags() })))
		network := v.Networks[net1]
		member := ipblock.Member{ServerID: "s"}
		for host := v.Sightings[0].Block.CIDR.Addr(); v.Sightings[0].Block.CIDR.Contains(host); host = host.Next() {
			member.IPs = append(member.IPs, host)
		}
		network.Members = []ipblock.Member{member}
		v.Networks[net1] = network
		step := ipblock.EnsureBlock(v.Sightings[0], v)
		step.Address = addr("")
		if got := tell(step); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}
