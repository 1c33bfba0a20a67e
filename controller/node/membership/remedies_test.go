package membership

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// advises is a Warning, what leads to it and what it says to do.
type advises struct {
	seed   pnapsim.Seed
	change func(*Network)
	// drive prepares what the Manager finds; nil for two Nodes that are selected.
	drive  func(*world)
	reason string
	// advice is a part of the text, with the parameters of remedy.
	advice string
	remedy func(w *world, advised []string)
	// joined is the Node whose server is a member afterwards; none is the one whose server is not.
	joined, none int
}

const nobodys = -1

// reconfigured starts the controller again with other options.
func reconfigured(change func(*Network)) func(*world, []string) {
	return func(w *world, _ []string) {
		change(&w.network)
		w.start()
	}
}

func selected(w *world) {
	w.node(0, true)
	w.node(1, true)
}

func unselect(number int) func(*world, []string) {
	return func(w *world, _ []string) { w.selectNode(number, false) }
}

// refuses has the API refuse what matches.
func refuses(method, path string, prepare func(*world)) func(*world) {
	return func(w *world) {
		prepare(w)
		if err := w.sim.Arm(pnapsim.Fault{Method: method, Path: path, Action: pnapsim.FaultStatus, Times: -1,
			Status: http.StatusForbidden}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// scopes gives the client the scopes that it lacked.
func scopes(w *world, _ []string) { w.sim.Disarm() }

// largerBlock is a second block of the account, to be brought for the nodes.
const largerBlock = "6047127fed34ecc3ba8402e9"

func withLarger(seed pnapsim.Seed) pnapsim.Seed {
	seed.Accounts[0].Clients[0].AllowForce = []string{pnapsim.ForceJoin}
	seed.Accounts[0].Blocks = append(seed.Accounts[0].Blocks, pnapsim.BlockSeed{ID: largerBlock, Location: "ASH",
		CIDR: "203.0.113.64/28", Network: simtest.NetworkID})
	return seed
}

func bringsLarger(w *world, _ []string) { w.bring("zz-larger", largerBlock) }

// bringsNodeBlock has a person bring the block that the account does not have, or that is of something else.
func bringsNodeBlock(w *world) {
	selected(w)
	w.bring(broughtObject, simtest.NodeBlockID)
}

func bringsInstead(w *world, advised []string) {
	deletesObject(w, advised)
	bringsLarger(w, advised)
}

func deletesObject(w *world, advised []string) {
	if err := kubefake.DeleteAllowed(w.t.Context(), w.blocks, advised[1]); err != nil {
		w.t.Fatal(err)
	}
}

func elsewhere() pnapsim.Seed {
	seed := seedOf(2, "203.0.113.0/28", nil)
	seed.Accounts[0].Servers[0].Location = "PHX"
	return seed
}

func ofService() pnapsim.Seed {
	seed := withLarger(seedOf(2, "203.0.113.0/28", nil))
	seed.Accounts[0].Blocks[0].Tags = map[string]string{"usage": contract.TagUsageAuto, "cluster": clusterUID,
		"service": "shop_web"}
	return seed
}

// inSurplus has server 0 in one of two blocks of which the other one is kept.
func inSurplus() pnapsim.Seed {
	seed := withSurplus(3, surplusA, surplusB)
	for i, ip := range []string{"203.0.113.2", "203.0.113.18"} {
		seed.Accounts[0].Servers[i].Networks = []pnapsim.MembershipSeed{{Network: simtest.NetworkID,
			IPs: []string{ip}}}
	}
	return seed
}

// joinedSurplus has server 0 join by the controller, in a block that is not kept because another one is recorded and in
// use.
func joinedSurplus(w *world) {
	w.recordPurchase(surplusA)
	w.node(0, true)
	w.start()
	w.run(2 * time.Minute)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: serverID(1), Network: simtest.NetworkID,
		IPs: []string{"203.0.113.18"}})
	w.recordPurchase(surplusB)
	w.node(2, true)
}

const joinPath = "/bmc/v1/servers/*/network-configuration/public-network-configuration/public-networks"

// warnings are the cases of the Warnings about memberships.
func warnings() map[string]advises {
	full := func() pnapsim.Seed { return seedOf(2, "203.0.113.0/30", nil) }
	memberPath := "/bmc/v1/servers/*/network-configuration/*/*/*"
	return map[string]advises{
		"NodeBlockFull, larger": {withLarger(full()), nil, selected, ReasonNodeBlockFull,
			"bring a further block with an IPBlock of source Brought and purpose Nodes", bringsLarger, 1, nobodys},
		"NodeBlockFull, none": {withLarger(full()), nil, selected, ReasonNodeBlockFull,
			"use no addresses with --node-address=none",
			reconfigured(func(c *Network) { c.WithoutAddress = true }), 1, nobodys},
		"NodeBlockFull, fewer": {full(), nil, selected, ReasonNodeBlockFull,
			"select fewer nodes with --service-node-selector", unselect(1), 0, 1},
		"NodeBlockUnavailable, missing": {withLarger(seedOf(2, "", nil)), nil, bringsNodeBlock,
			ReasonNodeBlockUnavailable, `IPBlock (\S+) is of .*, which the account does not have; delete it, and create`,
			bringsInstead, 1, nobodys},
		"NodeBlockUnavailable, of a Service": {ofService(), nil, bringsNodeBlock, ReasonNodeBlockUnavailable,
			"bought for something else.*; bring another block", bringsLarger, 1, nobodys},
		"NodeBlockUnavailable, two objects": {seedOf(2, "203.0.113.0/28", nil), nil, func(w *world) {
			selected(w)
			w.create("of-services", v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared,
				BlockID: simtest.NodeBlockID})
		}, ReasonNodeBlockUnavailable, `IPBlocks \S+ and (\S+) are both of .*; delete one of them`, deletesObject, 1,
			nobodys},
		"NodeBlockUnavailable, record of addresses": {seedOf(2, "203.0.113.0/28", nil), nil, damagedRecord,
			ReasonNodeBlockUnavailable, `IPBlock (\S+): .*repair its status, or .* delete it`,
			func(w *world, advised []string) {
				deletesObject(w, advised)
				w.run(time.Minute) // kubectl waits until the object is gone
				w.bring(advised[1], simtest.NodeBlockID)
			}, 1, nobodys},
		"PublicNetworkJoinRefused, scopes": {seedOf(2, "203.0.113.0/28", nil), nil,
			refuses(http.MethodPost, joinPath, selected), ReasonJoinRefused, "have the scopes", scopes, 1, nobodys},
		"PublicNetworkJoinRefused, elsewhere": {elsewhere(), nil, selected, ReasonJoinRefused,
			"exclude the Node with --service-node-selector", unselect(0), 1, 0},
		"PublicNetworkJoinRefused, renamed": {seedOf(3, "203.0.113.0/28", nil), nil, forged, ReasonJoinRefused,
			`phoenixNAP server (\S+) does not join .* node (\S+) names it\. .*give it the Node's name`,
			func(w *world, advised []string) {
				w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: advised[1], Hostname: advised[2]})
			}, 2, nobodys},
		"PublicNetworkJoinRefused, deleted": {seedOf(3, "203.0.113.0/28", nil), nil, forged, ReasonJoinRefused,
			`node (\S+) names it\. .*if not, delete the Node`, func(w *world, advised []string) {
				err := w.kube.CoreV1().Nodes().Delete(w.t.Context(), advised[1], metav1.DeleteOptions{})
				if err != nil {
					w.t.Fatal(err)
				}
			}, 0, 2},
		"PublicNetworkLeaveRefused": {seedOf(2, "203.0.113.0/28", nil), nil, refuses(http.MethodDelete, memberPath,
			func(w *world) {
				selected(w)
				w.start()
				w.run(2 * time.Minute)
				w.selectNode(0, false)
			}), ReasonLeaveRefused, "have the scopes", scopes, 1, 0},
		"NodeBlockSurplus, by hand": {inSurplus(), nil, func(w *world) {
			w.recordPurchase(surplusB)
			w.node(0, false)
			w.node(2, true)
		}, ReasonNodeBlockSurplus, `\(server (\S+)\) uses .*in the phoenixNAP portal, remove the server from the network`,
			func(w *world, advised []string) {
				w.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: advised[1], Network: simtest.NetworkID})
			}, 2, 0},
		"NodeBlockSurplus, joined": {withSurplus(3, surplusA, surplusB), nil, joinedSurplus, ReasonNodeBlockSurplus,
			`exclude the Node with --service-node-selector until it has left the network`, unselect(0), 2, 0},
	}
}

// damagedRecord has a Node whose server is to join once the record of addresses is damaged.
func damagedRecord(w *world) {
	w.node(0, true)
	w.node(1, false)
	w.start()
	w.run(5 * time.Minute)
	w.editLedger(simtest.NodeBlockID, func(s *v1beta1.IPBlockStatus) { s.CIDR = "" })
	w.selectNode(1, true)
}

// forged has a Node with the provider ID of a server that has another name.
func forged(w *world) {
	w.node(0, true)
	w.named("forged", 2)
}

// TestWarningsEndByTheirRemedy does what a Warning says: then the servers that have to be are members, and no Warning
// follows.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	for name, test := range warnings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.seed, test.change)
			test.drive(w)
			w.start()
			w.run(time.Hour)
			said := strings.Join(w.takeEvents(), "\n")
			advised := regexp.MustCompile("Warning " + test.reason + " .*" + test.advice).FindStringSubmatch(said)
			if advised == nil {
				t.Fatalf("events %q, want a Warning %s that advises %s", said, test.reason, test.advice)
			}
			test.remedy(w, advised)
			w.run(time.Hour)
			w.takeEvents()
			w.run(3 * time.Hour)
			if said := strings.Join(w.takeEvents(), "\n"); strings.Contains(said, "Warning") {
				t.Errorf("after the remedy there are the events %q", said)
			}
			if w.member(test.joined) == "none" || test.none != nobodys && w.member(test.none) != "none" {
				t.Errorf("after the remedy the servers are %q and %q", w.member(test.joined),
					w.member(max(test.none, 0)))
			}
			if strings.HasPrefix(test.reason, "NodeBlockSurplus") {
				w.expectBlocks(surplusB)
			}
		})
	}
}
