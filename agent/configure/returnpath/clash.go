package returnpath

import (
	"fmt"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// clash returns an error text when another program uses the bits, by the same rule as the finding PN504; otherwise
// empty.
func clash(o observed, bits Bits) string {
	s := check.Snapshot{}
	for _, name := range o.links {
		s.Links = append(s.Links, check.Link{Name: name})
	}
	for _, r := range o.rules {
		s.Rules = append(s.Rules, check.Rule{
			Priority: r.priority, Source: r.source, Mark: r.mark, Mask: r.mask,
			Table: r.table, Protocol: r.protocol, Invert: r.raw.Invert,
		})
	}
	who, found := check.MarkClash(s, uint32(bits))
	if !found && o.marker != "" {
		who = o.marker
		found = true
	}
	if !found {
		return ""
	}
	return fmt.Sprintf("the mark bits %s are also used by %s; choose other bits with --mark, or stop that use", bits,
		who)
}
