package returnpath

import "fmt"

// clash says whose rule would catch marked replies, or whose marked packets would follow a rule of ours; empty when nobody
// else uses the bits. A rule that asks for the bits to be zero is no clash: it never meets a marked reply.
func clash(o observed, bits Bits) string {
	for _, r := range o.rules {
		if !r.ours() && r.mark&r.mask&uint32(bits) != 0 {
			return fmt.Sprintf("the routing rule \"%s\" of another program (protocol %d) uses bits of %s: choose other bits with --mark, or delete the rule",
				r, r.protocol, bits)
		}
	}
	return ""
}
