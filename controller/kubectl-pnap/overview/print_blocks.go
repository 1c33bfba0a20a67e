package overview

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// standingRetained is the standing of a block that a user wants to keep.
const standingRetained = "retained"

// PrintBlocks writes the problems that concern the cluster's blocks, the blocks, their free addresses, and the blocks
// that can be released.
func PrintBlocks(w io.Writer, style text.Style, o Overview) error {
	s := sheet{style, o}
	var ours, idle []Block
	for _, b := range s.Blocks {
		if b.Releasable() {
			idle = append(idle, b)
		} else {
			ours = append(ours, b)
		}
	}
	var sections []string
	if problems := slices.DeleteFunc(slices.Clone(o.Problems), isOfTables); len(problems) > 0 {
		sections = append(sections, s.problems(problems))
	}
	if o.Unreachable() {
		_, err := io.WriteString(w, strings.Join(sections, "\n"))
		return err
	}
	sections = append(sections,
		s.Heading("OURS")+"\n"+s.owned(ours),
		s.Heading("FREE")+"\n"+s.free(),
		s.Heading("RECLAIMABLE")+"\n"+s.idle(idle),
	)
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

// isOfTables reports whether a problem concerns no blocks, or only repeats the list of reclaimable ones.
func isOfTables(p Problem) bool { return !p.OfBlocks() || p.Kind == KindBlocks }

func (s sheet) owned(blocks []Block) string {
	if len(blocks) == 0 {
		return s.noBlocks()
	}
	var rows [][]string
	for _, b := range blocks {
		purpose := b.For
		for _, address := range slices.SortedFunc(maps.Keys(b.Holders), netip.Addr.Compare) {
			purpose += fmt.Sprintf(", %s %s", address, b.Holders[address])
		}
		rows = append(rows, []string{b.CIDR, b.ID, b.Location, s.created(b), purpose})
	}
	return s.table([]string{"BLOCK", "ID", "SITE", "AGE", "FOR"}, rows) + s.limit()
}

// limit writes how many blocks are bought and how many of them outlive their Services, and how many are allowed.
func (s sheet) limit() string {
	if s.Controller.Looked == nil {
		return ""
	}
	bought := 0
	retained := 0
	for _, b := range s.Blocks {
		if b.Standing != contract.StandingBrought && b.Status != "" {
			bought++
		}
		if b.Retain {
			retained++
		}
	}
	said := fmt.Sprintf("%d bought", bought)
	if s.Network.MaxBlocks > 0 {
		said += fmt.Sprintf(", %d allowed (--max-ip-blocks)", s.Network.MaxBlocks)
	}
	if retained > 0 {
		said += fmt.Sprintf("\n%d may outlive their Services, %d allowed (--max-retained-ip-blocks)", retained,
			s.Network.MaxRetained)
	}
	return said + "\n"
}

// free lists addresses that Services can get without a purchase.
func (s sheet) free() string {
	var rows [][]string
	for _, b := range s.Blocks {
		if b.Unusable {
			continue
		}
		if b.Holders != nil && b.Free+b.Quarantined > 0 {
			rows = append(rows, []string{b.CIDR, fmt.Sprint(b.Free), fmt.Sprint(b.Quarantined), b.For})
		}
		if b.Standing == contract.StandingBrought && b.Holders == nil {
			purpose := b.For
			if b.IPBlock != "" {
				purpose = contract.ServiceIPBlock + ": " + b.IPBlock
			}
			rows = append(rows, []string{b.CIDR, "all", "0", purpose})
		}
	}
	switch why := s.blocksUnknown(); {
	case len(rows) > 0:
	case !s.knows(PartAllocations):
		return s.mark(unknown, "unknown, see the problems") + "\n"
	case why != "":
		return s.mark(unknown, why) + "\n"
	default:
		return "none: the next Service needs a new block\n"
	}
	return s.table([]string{"BLOCK", "FREE", "QUARANTINED", "FOR"}, rows)
}

func (s sheet) idle(blocks []Block) string {
	if len(blocks) == 0 {
		if why := s.blocksUnknown(); why != "" {
			return s.mark(unknown, why) + "\n"
		}
		return "none: every block that is paid for is in use\n"
	}
	var rows [][]string
	remedies := map[string]bool{}
	for _, b := range blocks {
		unused := "-"
		if b.Unused != nil {
			unused = s.age(*b.Unused)
		}
		rows = append(rows, []string{b.CIDR, b.ID, s.created(b), unused, s.standing(b) + ": " + b.For})
		if b.Held {
			remedies[held] = true
		} else {
			remedies[b.Standing] = true
		}
	}
	text := s.table([]string{"BLOCK", "ID", "AGE", "UNUSED", "STANDING"}, rows)
	for _, standing := range slices.Sorted(maps.Keys(remedies)) {
		text += s.paragraph("- " + standing + ": " + remedy(standing))
	}
	return text
}

// held is the key of the remedy for orphans that are not deleted until a person confirms it.
const held = "orphan, held"

// givenUp is how a person releases a block whose address someone may still count on.
const givenUp = "kubectl annotate ipb <name> " + contract.AllowRelease + "=true && kubectl delete ipb <name>"

// remedy describes how to release an unused block, or how to use it again.
func remedy(standing string) string {
	switch standing {
	case standingRetained:
		return "kept because of phoenixnap.com/ip-retain: a new Service of that name gets it back; if it is no " +
			"longer needed, " + givenUp
	case held:
		return "too many blocks became orphans at once: create the Services again, or " + givenUp
	case "orphan":
		return "delete its IPBlock (kubectl get ipb), create the Service again, or set --collect-orphans"
	case "leftover":
		return "version 1 marked it for deletion: the controller deletes it"
	case "empty":
		return "none of its addresses is in use: the controller releases it"
	default:
		return "the controller never changes it: check it in the portal"
	}
}
