package reconcile_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// recreated deletes the Service web and creates it again.
func recreated(changes ...func(*corev1.Service)) func(*world) {
	return func(w *world) {
		w.delete("web")
		w.settle("web")
		w.service("web", changes...)
	}
}

// remedies do what the message of a refusal says, in the situation that leads to it.
var remedies = map[string]func(*world){
	"LocationMissing":  edited(annotated(contract.ServiceIPLocation, "ASH")),
	"NetworkNotServed": edited(annotated(contract.ServiceNetwork, v1beta1.DefaultNetwork)),
	"LocationMismatch": edited(annotated(contract.ServiceIPLocation, "ASH")),
	"NetworkUnusable": byPortal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID,
		Status: "READY"}),
	"TooManyBlocks": func(w *world) {
		w.delete("first")
		w.settle("first")
	},
	"AddressRefused": edited(func(s *corev1.Service) { delete(s.Annotations, contract.ServiceRequestedIP) }),
	"BlockElsewhere": byPortal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock}),
	"BlockLost":      edited(annotated(contract.ServiceIPReplace, "true")),
	"BlockRetagged":  byPortal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Tags: ours("web")}),
	"MemberHoldsAddress": func(w *world) {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID, Network: networkID})
	},
	"StatusNotKnown":        byPortal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus, Status: "assigned"}),
	"PurchaseRefused":       func(w *world) { w.sim.Disarm() },
	"SizeMismatch":          recreated(annotated(contract.ServiceIPBlockSize, "/28")),
	"AnnotationsRefused":    edited(annotated(contract.ServiceIPRetain, "true")),
	"AllocationMismatch":    recreated(inPool()),
	"TooManyRetainedBlocks": edited(func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPRetain) }),
	"NetworkFull":           byPortal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: foreignID}),
	"LocationNotOnSale":     useNetwork(networkInPHX),
	"BlockUnusable":         edited(func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPBlock) }),
	"BlockInErrorState":     byPortal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock}),
	"AddressConflict":       edited(sharing("front", 25)),
	"LedgerUnreadable":      func(w *world) { w.deleteIPBlock(w.objectOf(w.blockID())) },
}

// alternatives are further cases and remedies of refusals, beside refusals and remedies.
var alternatives = map[string]struct {
	situation
	remedy func(*world)
}{
	"NetworkFull, another network": {refusals["NetworkFull"], useNetwork(otherNetwork)},
	"NetworkFull, a shared block has room": {situation{
		options: []option{withBlocks(foreignBlocks(8)...)},
		drive: func(w *world) {
			w.service("shares", inPool())
			w.settle("shares")
			w.service("web")
		},
		says: []string{networkID, "has a free address",
			"set the annotation " + contract.ServiceIPAllocation + " to shared"},
	}, edited(inPool())},
	"TooManyRetainedBlocks, released": {situation{
		options: []option{configured(func(c *reconcile.Config) { c.MaxRetainedPerNamespace = 1 })},
		drive: func(w *world) {
			retained := annotated(contract.ServiceIPRetain, "true")
			w.service("first", retained)
			w.settle("first")
			w.service("web", retained)
		},
		says: []string{"release one of these blocks"},
	}, func(w *world) {
		w.edit("first", func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPRetain) })
		w.settle("first")
	}},
	"TooManyRetainedBlocks, raised": {refusals["TooManyRetainedBlocks"],
		reconfigured(func(c *reconcile.Config) { c.MaxRetainedPerNamespace = 1 })},
	"TooManyBlocks, raised": {refusals["TooManyBlocks"], reconfigured(func(c *reconcile.Config) { c.MaxBlocks = 2 })},
	"LocationMissing, option": {refusals["LocationMissing"],
		reconfigured(func(c *reconcile.Config) { c.Location = "ASH" })},
	"BlockLost, again": {refusals["BlockLost"], recreated()},
	"BlockUnusable, another": {situation{options: []option{broughtBlock("", ofCluster())},
		drive: inTurn(func(w *world) { w.bringBlock("mine", "60473c2509268bc77fd06d99") }, served(naming("mine"))),
		says:  []string{"is not in the account", "name another one"}}, edited(inBlock(broughtID))},
	"BlockUnusable, an ID": {situation{options: []option{broughtBlock("", ofCluster())},
		drive: served(naming(broughtID)), says: []string{"takes the name", "set it to " + givenAs(broughtID)}},
		edited(inBlock(broughtID))},
	"BlockUnusable, of the controller": {situation{options: []option{broughtBlock("", ofCluster())},
		drive: func(w *world) {
			own := w.service("own")
			w.settle("own")
			w.service("web", naming("svc-"+string(own.UID)))
		}, says: []string{"is not for Services to name: name one with purpose Shared"}}, edited(inBlock(broughtID))},
	"AddressRefused, of a block that is named": {situation{drive: func(w *world) {
		w.service("pooled", inPool())
		w.settle("pooled")
		w.service("web", naming("default-shared-1"), annotated(contract.ServiceRequestedIP, w.address("pooled")))
	}, says: []string{"is in use by another"}}, edited(annotated(contract.ServiceRequestedIP, ""))},
	"BlockUnusable, of another cluster": {situation{
		options: []option{broughtBlock("", map[string]string{contract.TagCluster: "other"})},
		drive:   inTurn(func(w *world) { w.bring("mine") }, served(naming("mine"))),
		says:    []string{"remove its tags in the phoenixNAP portal"}},
		byPortal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: broughtID})},
	"BlockUnusable, brought": {situation{options: []option{broughtBlock("", nil)}, drive: served(naming("mine")),
		says: []string{"have an administrator create it with purpose Shared"}}, func(w *world) { w.bring("mine") }},
	"BlockUnusable, an ID of no IPBlock": {situation{options: []option{broughtBlock("", nil)},
		drive: served(naming(broughtID)),
		says:  []string{"have an administrator create an IPBlock with source Brought"}},
		inTurn(func(w *world) { w.bring("mine") }, edited(naming("mine")))},
	"BlockUnusable, its IPBlock is gone": {situation{options: []option{broughtBlock("", nil)},
		drive: inTurn(func(w *world) { w.bring("mine") }, served(naming("mine")), settled,
			func(w *world) { w.deleteIPBlock("mine") }),
		says: []string{"have an administrator create it again", "203.0.113.66"}}, func(w *world) { w.bring("mine") }},
	"BlockUnusable, for another namespace": {situation{options: []option{broughtBlock("", nil)},
		drive: inTurn(func(w *world) { w.bring("mine", "tools") }, served(naming("mine"))),
		says:  []string{"add the namespace to spec.allowedNamespaces of IPBlock mine"}},
		func(w *world) {
			w.deleteIPBlock("mine")
			w.bring("mine", "tools", "shop")
		}},
	"BlockUnusable, divided": {situation{options: []option{divided(ofCluster())}, drive: served(inBlock(dividedID)),
		says: []string{"name an IPBlock of one of these instead"}}, edited(inBlock(partID))},
	"BlockUnusable, joined": {situation{options: []option{divided(ours("web"))}, drive: served(),
		says: []string{"delete them in the phoenixNAP portal"}},
		inTurn(byPortal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: partID}),
			byPortal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: secondPartID}))},
	"BlockUnusable, divided and given away": {situation{options: []option{divided(ofPool())}, drive: served(inPool()),
		says: []string{"remove the tags of this one"}},
		byPortal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: dividedID})},
	"BlockUnusable, managed": {situation{options: []option{one(ofCluster(), managed), broughtBlock("", ofCluster())},
		drive: served(inBlock(dividedID)), says: []string{"name another one"}}, edited(inBlock(broughtID))},
	"BlockUnusable, of the nodes": {situation{options: []option{broughtBlock("", ofCluster()),
		withBlocks(secondBrought())}, drive: inTurn((*world).bringForNodes, served(inBlock(broughtID))),
		says: []string{"is that of the nodes", "name another one"}},
		edited(inBlock(foreignID))},
	"BlockUnusable, full": {situation{options: []option{broughtBlock("", ofCluster()), withBlocks(secondBrought())},
		drive: func(w *world) {
			for _, name := range []string{"one", "two", "three", "four", "five"} {
				w.service(name, inBlock(broughtID))
				w.settle(name)
			}
			w.service("web", inBlock(broughtID))
		}, says: []string{"are in use", "name another one"}}, edited(inBlock(foreignID))},
	"BlockLost, brought": {situation{options: []option{broughtBlock("", ofCluster()), withBlocks(secondBrought())},
		drive: inTurn(served(inBlock(broughtID)), settled, deletesBlock(broughtID)),
		says:  []string{broughtID, "delete the Service and create it again", contract.ServiceIPBlock}},
		recreated(inBlock(foreignID))},
	"BlockLost, brought, and from no block of the user": {situation{options: []option{broughtBlock("", ofCluster())},
		drive: inTurn(served(inBlock(broughtID)), settled, deletesBlock(broughtID)),
		says:  []string{"or without this annotation"}}, recreated()},
	"AnnotationsRefused, of a lost block that was brought": {situation{
		options: []option{broughtBlock("", ofCluster()), withBlocks(secondBrought())},
		drive: inTurn(served(inBlock(broughtID)), settled, edited(annotated(contract.ServiceIPBlockSize, "/99")),
			deletesBlock(broughtID)),
		says: []string{"/99", "besides, IP block " + broughtID, "delete the Service and create it again"}},
		recreated(inBlock(foreignID))},
	"AnnotationsRefused, of a lost block that may be replaced": {situation{drive: inTurn(published(),
		edited(annotated(contract.ServiceIPBlockSize, "/99", contract.ServiceIPReplace, "true")),
		func(w *world) { deletesBlock(w.blockID())(w) }),
		says: []string{"/99", "besides, the IP block", "is gone from the account",
			"the Service gets a new address as soon as this is corrected"}},
		edited(func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPBlockSize) })},
	"AnnotationsRefused, of a lost block": {situation{drive: inTurn(published(),
		edited(annotated(contract.ServiceIPBlockSize, "/99")),
		func(w *world) { deletesBlock(w.blockID())(w) }),
		says: []string{"/99", "besides, the IP block", "is gone from the account",
			"set the annotation " + contract.ServiceIPReplace + " to \"true\""}},
		edited(func(s *corev1.Service) {
			delete(s.Annotations, contract.ServiceIPBlockSize)
			s.Annotations[contract.ServiceIPReplace] = "true"
		})},
	"LedgerUnreadable, restored": {situation{drive: inTurn(published(inPool()), damageLedger),
		says: []string{"repair its status"}}, func(w *world) { repairLedger(w, w.blockID()) }},
}

// secondBrought is a block of the user beside the one of broughtBlock.
func secondBrought() pnapsim.BlockSeed {
	return pnapsim.BlockSeed{ID: foreignID, Location: "ASH", CIDR: "203.0.113.72/29", Tags: ofCluster(),
		BringYourOwn: true, Grants: []string{pnapsim.GrantAssign, pnapsim.GrantUnassign}}
}

// settled lets the Service web get its address.
func settled(w *world) { w.settle("web") }

// deletesBlock deletes a block in the portal, for longer than a list of the account may lag.
func deletesBlock(id string) func(*world) {
	return func(w *world) {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: id})
		w.clock.Advance(5 * time.Minute)
	}
}

// reconfigured starts the controller again with other options.
func reconfigured(change func(*reconcile.Config)) func(*world) {
	return func(w *world) {
		change(&w.config)
		w.restart()
	}
}

// useNetwork starts the controller again with another public network, to which the servers belong by then.
func useNetwork(id string) func(*world) {
	return func(w *world) {
		w.setNodes(w.node("node-1", func(n *corev1.Node) { maps.Copy(n.Annotations, nodenet.Member(id)) }))
		reconfigured(func(c *reconcile.Config) {
			c.Network.ID = id
			if id == networkInPHX {
				c.Location = "PHX"
			}
		})(w)
	}
}

// TestRefusalsEndByTheirRemedy does what a refusal says: then the Service gets its address, or goes if it was deleted,
// and nothing is refused any more.
func TestRefusalsEndByTheirRemedy(t *testing.T) {
	follow := func(name string, s situation, remedy func(*world)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, _, _ := strings.Cut(name, ",")
			w := newWorld(t, s.options...)
			s.drive(w)
			w.reaches(contract.ServiceConditionBlockAssigned, reason, s.says)
			w.refusedByEvent(reason)
			remedy(w)
			w.clock.Advance(10 * time.Minute)
			w.settle("web")
			w.endsRefusal("web")
		})
	}
	for reason, remedy := range remedies {
		follow(reason, refusals[reason], remedy)
	}
	for name, a := range alternatives {
		follow(name, a.situation, a.remedy)
	}
}

// endsRefusal demands that the Service has its address, says nothing else, and no event refuses anything for an hour.
func (w *world) endsRefusal(name string) {
	w.t.Helper()
	service := w.get(name)
	if service == nil || service.DeletionTimestamp != nil {
		return
	}
	if len(service.Status.LoadBalancer.Ingress) != 1 || w.condition(name).Reason != string(ipblock.BlockAssigned) {
		w.t.Errorf("after the remedy the Service has %+v", service.Status)
	}
	w.eventReasons()
	w.passes(time.Hour)
	w.settle(name)
	for _, event := range w.eventReasons() {
		if slices.Contains([]string{"IPBlockRefused", "BlockLost", "BlockRetagged", "RecordUnreadable",
			"AddressConflict"}, event) {
			w.t.Errorf("after the remedy there is an event %s", event)
		}
	}
}

// TestEventsEndByTheirRemedy does what events advise that are no refusals: then they are not sent again.
func TestEventsEndByTheirRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		drive  func(*world)
		// advice is what the event says to do, with the parameters of remedy.
		advice string
		remedy func(w *world, advised []string)
	}{
		"an address still answers": {"StaleAddress", func(w *world) {
			w.config.Announcer = contract.AnnouncerKubeVIP
			w.report("", "")
			w.restart()
			w.service("other", inPool())
			w.service("web", inPool())
			w.settleAll("other", "web")
			w.report(w.address("web"), contract.AddressAnswered)
			w.delete("web")
			w.settle("web")
		}, `ip address delete ([0-9.]+)/32 dev`, func(w *world, advised []string) {
			w.report(advised[1], contract.AddressSilent)
		}},
		"a record of addresses, deleted": {"RecordUnreadable", damagedLedger,
			`IPBlock (\S+): .* and delete it`, func(w *world, advised []string) { w.deleteIPBlock(advised[1]) }},
		"a record of addresses, restored": {"RecordUnreadable", damagedLedger,
			`IPBlock (\S+): .* repair its status`, repairAdvised},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.drive(w)
			w.eventReasons()
			w.passes(5 * time.Minute)
			said := w.eventsOf(test.reason)
			advised := regexp.MustCompile(test.advice).FindStringSubmatch(strings.Join(said, "\n"))
			if advised == nil {
				t.Fatalf("events %q, want one that advises %s", said, test.advice)
			}
			test.remedy(w, advised)
			w.passes(5 * time.Minute)
			w.eventReasons()
			w.passes(3 * time.Hour)
			if again := w.eventsOf(test.reason); len(again) > 0 {
				t.Errorf("after the remedy there are events %q", again)
			}
			w.service("next", inPool())
			w.settle("next")
			w.wantAddressesOnce("other", "next")
		})
	}
}

// damagedLedger has one Service in the pool, whose record is damaged and keeps what it was.
func damagedLedger(w *world) {
	w.service("other", inPool())
	w.settle("other")
	damageLedger(w)
}
