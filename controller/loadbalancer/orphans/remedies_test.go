package orphans_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// holder is a server with an address of the block of Service web.
func holder(_ *pnapsim.Config, a *pnapsim.AccountSeed, _ *orphans.Config) {
	a.Servers = []pnapsim.ServerSeed{{ID: "60473c2509268bc77fd06d31", Hostname: "node-1", Location: "ASH",
		NetworkType: "PRIVATE_ONLY", Networks: []pnapsim.MembershipSeed{{Network: "public",
			IPs: []string{"203.0.113.10"}}}}}
}

// byPortal deletes the block that the event names, after it was taken off its network.
func byPortal(w *world, advised []string) {
	for _, kind := range []string{pnapsim.EditUnassignBlock, pnapsim.EditDeleteBlock} {
		if err := w.sim.OutOfBand(pnapsim.Edit{Kind: kind, Block: advised[1]}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func serviceAgain(w *world, advised []string) {
	_, name, _ := strings.Cut(advised[2], "_")
	w.service(name, false)
}

// TestEventsEndByTheirRemedy does what an event about an unused block says: then it is used or gone, and there is no
// further event about it.
func TestEventsEndByTheirRemedy(t *testing.T) {
	const aBlock = `IP block (\S+) \(.*`
	const ofService = aBlock + `Service (\S+) \(.*`
	for name, test := range map[string]struct {
		options []option
		reason  string
		// advice is a part of the event, with the parameters of remedy.
		advice string
		remedy func(w *world, advised []string)
	}{
		"deleted in the portal": {[]option{web}, "OrphanedIPBlock",
			ofService + "or the block in the phoenixNAP portal", byPortal},
		"the Service again": {[]option{web}, "OrphanedIPBlock", ofService + "create the Service again", serviceAgain},
		"collected": {[]option{web}, "OrphanedIPBlock", ofService + "set --collect-orphans",
			func(w *world, _ []string) {
				w.config.Collect = true
				w.restart()
			}},
		"shared, deleted in the portal": {[]option{block(blockID, "203.0.113.8/29", "public",
			ours(contract.TagPool, v1beta1.DefaultNetwork))}, "OrphanedIPBlock",
			aBlock + "else delete it in the phoenixNAP portal", byPortal},
		"for nothing known": {[]option{block(blockID, "203.0.113.8/29", "public", ours(contract.TagUsage,
			contract.TagUsageAuto))}, "OrphanedIPBlock",
			aBlock + "until it is deleted: do that in the phoenixNAP portal if nothing uses it", byPortal},
		"its IPBlock is deleted": {[]option{web}, "OrphanedIPBlock", ofService + "delete its IPBlock,",
			func(w *world, advised []string) { w.confirm(advised[1]) }},
		"many, confirmed": {dedicated(4), "OrphanNotCollected",
			`delete its IPBlock: kubectl annotate ipb <name> phoenixnap.com/allow-release=true && kubectl delete ipb`,
			func(w *world, _ []string) {
				for i := range 4 {
					w.confirm(blockNumber(i))
				}
			}},
		"many, the Services again": {dedicated(4), "OrphanedIPBlock",
			ofService + "create the Service again, or give its IPBlock the annotation",
			func(w *world, _ []string) {
				for i := range 4 {
					w.service(serviceNumber(i), false)
				}
			}},
		"a server has an address": {[]option{web, collecting, holder}, "OrphanNotCollected",
			`server (\S+) holds address \S+ of .* in public network (\S+); take the address off the server`,
			func(w *world, advised []string) {
				if err := w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: advised[1],
					Network: advised[2]}); err != nil {
					w.t.Fatal(err)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.options...)
			w.pass(3 * grace)
			said := strings.Join(w.heard, "\n")
			advised := regexp.MustCompile("Warning " + test.reason + " .*" + test.advice).FindStringSubmatch(said)
			if advised == nil {
				t.Fatalf("events %q, want one that advises %s", w.heard, test.advice)
			}
			test.remedy(w, advised)
			w.pass(3 * grace)
			w.heard = nil
			w.pass(25 * time.Hour)
			if n := w.count("Warning"); n > 0 {
				t.Errorf("after the remedy there are %d Warnings: %q", n, w.heard[:min(9, len(w.heard))])
			}
			if name == "the Service again" || name == "many, the Services again" {
				w.untouched()
			} else if left := w.blocks(); len(left) > 0 {
				t.Errorf("after the remedy there are %v", left)
			}
		})
	}
}
