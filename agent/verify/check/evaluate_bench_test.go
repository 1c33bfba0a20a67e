package check

import (
	"fmt"
	"net/netip"
	"testing"
)

// BenchmarkEvaluate is a sample of a node with 200 pods, without what the kernel takes to answer.
func BenchmarkEvaluate(b *testing.B) {
	e, s := nodeWith(func(_ *Expected, s *Snapshot) {
		for i := range 200 {
			s.Links = append(s.Links, Link{Index: 100 + i, Name: fmt.Sprintf("veth%d", i), Type: "veth", Up: true,
				LowerUp: true, OperState: "up", Master: 7})
			s.Addresses = append(s.Addresses, Address{LinkIndex: 100 + i, Prefix: netip.MustParsePrefix("fe80::1/64")})
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		Questions(e, s)
		Evaluate(e, s)
	}
}
