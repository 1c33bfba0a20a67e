package sheet

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// standingRetained is the standing of a block that a user wants to keep.
const standingRetained = "retained"

// Blocks writes the cluster's blocks, their free addresses, and the blocks that can be released.
func (s Style) Blocks(w io.Writer, o overview.Overview) error {
	var ours, idle []overview.Block
	for _, b := range o.Blocks {
		if b.Releasable() {
			idle = append(idle, b)
		} else {
			ours = append(ours, b)
		}
	}
	sections := []string{
		s.heading("OURS") + "\n" + s.owned(o, ours),
		s.heading("FREE") + "\n" + s.free(o),
		s.heading("RECLAIMABLE") + "\n" + s.idle(o, idle),
	}
	for _, text := range o.Unreadable {
		sections = append(sections, s.paragraph(text))
	}
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

func (s Style) owned(o overview.Overview, blocks []overview.Block) string {
	if len(blocks) == 0 {
		return s.noBlocks(o)
	}
	var rows [][]string
	for _, b := range blocks {
		purpose := b.For
		for _, address := range slices.SortedFunc(maps.Keys(b.Holders), netip.Addr.Compare) {
			purpose += fmt.Sprintf(", %s %s", address, b.Holders[address])
		}
		rows = append(rows, []string{b.CIDR, b.ID, b.Location, created(o.Time, b), purpose})
	}
	return s.table([]string{"BLOCK", "ID", "SITE", "AGE", "FOR"}, rows) + s.limit(o)
}

// limit writes how many blocks are bought, and how many are allowed.
func (s Style) limit(o overview.Overview) string {
	bought := 0
	for _, b := range o.Blocks {
		if b.Standing != contract.StandingBrought && b.Status != "" {
			bought++
		}
	}
	if o.Network.MaxBlocks == 0 {
		return fmt.Sprintf("%d bought\n", bought)
	}
	return fmt.Sprintf("%d bought, %d allowed (--max-ip-blocks)\n", bought, o.Network.MaxBlocks)
}

// free lists addresses that Services can get without a purchase.
func (s Style) free(o overview.Overview) string {
	var rows [][]string
	for _, b := range o.Blocks {
		if b.Holders != nil && b.Free+b.Resting > 0 {
			rows = append(rows, []string{b.CIDR, fmt.Sprint(b.Free), fmt.Sprint(b.Resting), b.For})
		}
		if b.Standing == contract.StandingBrought && b.Holders == nil {
			rows = append(rows, []string{b.CIDR, "all", "0", "phoenixnap.com/ip-block-id: " + b.ID})
		}
	}
	if len(rows) == 0 {
		return "none: the next Service needs a new block\n"
	}
	return s.table([]string{"BLOCK", "FREE", "QUARANTINED", "FOR"}, rows)
}

func (s Style) idle(o overview.Overview, blocks []overview.Block) string {
	if len(blocks) == 0 {
		return "none: every block that is paid for is in use\n"
	}
	var rows [][]string
	remedies := map[string]bool{}
	for _, b := range blocks {
		unused := "-"
		if b.Unused != nil {
			unused = age(o.Time, *b.Unused)
		}
		rows = append(rows, []string{b.CIDR, b.ID, created(o.Time, b), unused, s.standing(b) + ": " + b.For})
		remedies[b.Standing] = true
	}
	text := s.table([]string{"BLOCK", "ID", "AGE", "UNUSED", "STANDING"}, rows)
	for _, standing := range slices.Sorted(maps.Keys(remedies)) {
		text += s.paragraph("- " + standing + ": " + remedy(standing))
	}
	return text
}

// remedy describes how to release an unused block, or how to use it again.
func remedy(standing string) string {
	switch standing {
	case standingRetained:
		return "kept because of phoenixnap.com/ip-retain: a new Service of that name gets it back; " +
			"delete it in the portal if it is no longer needed"
	case "orphan":
		return "delete it in the portal, create the Service again, or set --collect-orphans"
	case "leftover":
		return "version 1 marked it for deletion: the controller deletes it"
	case "empty":
		return "none of its addresses is in use: the controller releases it"
	default:
		return "the controller never changes it: check it in the portal"
	}
}
