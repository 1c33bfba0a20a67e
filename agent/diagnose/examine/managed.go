//go:build linux

package examine

import (
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// managed is what an agent keeps on this node, as the agent's own marks in the kernel show.
type managed struct {
	// things in the words of --manage.
	things []string
	// mark and mask are those of the return path, zero where it is not managed.
	mark, mask uint32
}

func managedOf(s check.Snapshot) managed {
	var m managed
	for _, l := range s.Links {
		if _, ours, err := ownership.ParseRecord(l.Alias); ours || err != nil {
			m.things = []string{"vlan"}
		}
	}
	for _, r := range s.Rules {
		if r.Protocol == ownership.Protocol && r.Mask != 0 && m.mask == 0 {
			m.things, m.mark, m.mask = append(m.things, "return-path"), r.Mark, r.Mask
		}
	}
	return m
}
