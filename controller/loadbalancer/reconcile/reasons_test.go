package reconcile_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// situation leads the Service web to a reason of a condition.
type situation struct {
	options []option
	// drive prepares what the Service is synced in.
	drive func(*world)
	// says are parts of the message: what it is about and, of a refusal or a failure, what to do.
	says []string
}

// served creates the Service web, and published has it published.
func served(changes ...func(*corev1.Service)) func(*world) {
	return func(w *world) { w.service("web", changes...) }
}

func published(changes ...func(*corev1.Service)) func(*world) {
	return func(w *world) {
		w.service("web", changes...)
		w.settle("web")
		w.clock.Advance(time.Hour)
	}
}

// inTurn does one thing after the other.
func inTurn(steps ...func(*world)) func(*world) {
	return func(w *world) {
		for _, step := range steps {
			step(w)
		}
	}
}

func edited(change func(*corev1.Service)) func(*world) {
	return func(w *world) { w.edit("web", change) }
}

func deleted(w *world) { w.delete("web") }

// failing has the API fail for good at what matches.
func failing(method, path string, status int) func(*world) {
	return func(w *world) {
		w.arm(pnapsim.Fault{Method: method, Path: path, Action: pnapsim.FaultStatus, Status: status, Times: -1})
	}
}

// byPortal changes the only block of the Service, or the public network, by hand.
func byPortal(e pnapsim.Edit) func(*world) {
	return func(w *world) {
		e := e
		if e.Network == "" && e.Block == "" {
			e.Block = w.blockID()
		}
		w.portal(e)
	}
}

const anyBlock = blocksPath + "/*"

// onTheWay are the reasons of BlockAssigned for which one waits.
var onTheWay = map[string]situation{
	"PurchaseDue": {drive: inTurn(served(), failing(http.MethodGet, "/location-api/v1/locations", 500)),
		says: []string{"list locations", "500", "tries again"}},
	"PurchaseUnanswered": {drive: func(w *world) {
		w.service("web")
		w.arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: pnapsim.FaultReset, Times: -1})
	}, says: []string{"whether an IP block was bought"}},
	"NoNodeReady": {drive: inTurn(noNodeReady, served()), says: []string{"a Node that may carry",
		"Node node-1 has the condition", "kubectl describe node node-1"}},
	"BlockCreating": {drive: served(), says: []string{"203.0.113.8/29", "to be created"}},
	"BlockInvisible": {options: []option{slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(time.Hour) })},
		drive: inTurn(served(), failing(http.MethodGet, anyBlock, 404)),
		says:  []string{"API to show the IP block", ": block "}},
	"AssignmentDue": {drive: inTurn(served(), failing(http.MethodPost, assignPath, 500)),
		says: []string{"assigned to the public network", "assign IP block", networkID, "500", "tries again"}},
	"BlockAssigning": {drive: served(),
		says: []string{"203.0.113.8/29", "to be assigned to the public network", "network " + networkID}},
	"BlockAssigned": {drive: served(), says: []string{"assigned to the public network"}},
	"UnassignmentDue": {drive: inTurn(served(), failsToAssign, failing(http.MethodDelete, unassignPath, 500)),
		says: []string{"unassigned", "unassign IP block", networkID, "500", "tries again"}},
	"BlockUnassigning": {drive: inTurn(published(), deleted),
		says: []string{"203.0.113.8/29", "to be unassigned from its network", "network " + networkID}},
	"DeletionDue": {options: []option{withBlocks(foreignBlocks(9)...), withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web")},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: ours("web")})},
		drive: inTurn(served(), failing(http.MethodDelete, anyBlock, 500)),
		says:  []string{"to be deleted", "delete IP block", "500", "tries again"}},
	"DeletionUnverified": {options: []option{withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29",
		Tags: ours("web")})}, drive: inTurn(served(), failing(http.MethodGet, anyBlock, 404)),
		says: []string{"disappear from the account"}},
	"AddressQuarantined": {options: []option{configured(func(c *reconcile.Config) { c.MaxBlocks = 1 })},
		drive: func(w *world) {
			w.oneQuarantined(time.Minute)
			w.service("web", inPool())
		}, says: []string{"the quarantine of a released address", "until 2026-03-01T"}},
	"NetworkChanging": {drive: inTurn(served(), byPortal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus,
		Network: networkID, Status: "BUSY"})), says: []string{"another change of the public network"}},
	"NetworkUnreadable": {options: []option{withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29",
		Tags: ours("web"), Network: "other"})}, drive: inTurn(served(), deleted,
		failing(http.MethodGet, "/networks/v1/public-networks/"+otherNetwork, 403)),
		says: []string{"network of the IP block to become readable"}},
	"TagsFresh": {drive: served(), says: []string{"new tags"}},
	"APIPaused": {drive: func(w *world) {
		w.service("web")
		w.arm(pnapsim.Fault{Path: "/ips/v1/*", Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 60, Times: -1})
	}, says: []string{"list IP blocks", "until 2026-03-01T", "--api-requests-per-second"}},
}

// refusals are the reasons of BlockAssigned that need a person.
var refusals = map[string]situation{
	"LocationMissing": {options: []option{configured(func(c *reconcile.Config) { c.Location = "" })}, drive: served(),
		says: []string{"set the annotation " + contract.ServiceIPLocation, "PNAP_LOCATION"}},
	"LocationMismatch": {options: []option{configured(func(c *reconcile.Config) { c.Location = "" })},
		drive: served(annotated(contract.ServiceIPLocation, "PHX")), says: []string{"PHX", networkID, "set ", "ASH"}},
	"NetworkFull": {options: []option{withBlocks(foreignBlocks(9)...)}, drive: served(),
		says: []string{networkID, "release one", "another network", "10 by others"}},
	"NetworkUnusable": {drive: inTurn(served(), byPortal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus,
		Network: networkID, Status: "ERROR"})), says: []string{networkID, "ERROR", "READY", "portal"}},
	"TooManyRetainedBlocks": {
		options: []option{configured(func(c *reconcile.Config) { c.MaxRetainedPerNamespace = 0 })},
		drive:   served(annotated(contract.ServiceIPRetain, "true")), says: []string{contract.ServiceIPRetain,
			"namespace shop", "--max-retained-ip-blocks-per-namespace", "remove the annotation"}},
	"TooManyBlocks": {options: []option{configured(func(c *reconcile.Config) { c.MaxBlocks = 1 })},
		drive: func(w *world) {
			w.service("first")
			w.settle("first")
			w.service("web")
		}, says: []string{"1 IP blocks", "--max-ip-blocks", "release one"}},
	"AddressRefused": {drive: served(annotated(contract.ServiceRequestedIP, "192.0.2.1")),
		says: []string{contract.ServiceRequestedIP, "192.0.2.1", "clear it"}},
	"BlockElsewhere": {options: []option{withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29",
		Tags: ours("web"), Network: "other"})}, drive: served(),
		says: []string{"203.0.113.8/29", otherNetwork, "remove it there"}},
	"BlockLost": {drive: inTurn(published(), byPortal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock})),
		says: []string{"203.0.113.10", contract.ServiceIPReplace}},
	"BlockRetagged": {drive: inTurn(published(), byPortal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock,
		Tags: map[string]string{}})), says: []string{"203.0.113.8/29", "restore them"}},
	"BlockUnusable": {drive: served(naming("missing")),
		says: []string{"IPBlock missing", contract.ServiceIPBlock, "is not in the cluster", "name another one"}},
	"MemberHoldsAddress": {options: []option{withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29",
		Tags: ours("web"), Network: "public"})}, drive: inTurn(memberOf("203.0.113.10"), served(), deleted),
		says: []string{serverID, "203.0.113.10", networkID, "take the address off the server"}},
	"StatusNotKnown": {drive: inTurn(published(), byPortal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus,
		Status: "lent"})), says: []string{"203.0.113.8/29", "lent", "portal"}},
	"PurchaseRefused": {drive: inTurn(served(), failing(http.MethodPost, blocksPath, 403)),
		says: []string{"/29 in ASH", "403", "scopes bmc, bmc.read, tags and tags.read"}},
	"LocationNotOnSale": {drive: func(w *world) {
		w.service("web")
		w.arm(pnapsim.Fault{Path: "/location-api/v1/locations", Action: pnapsim.FaultDropField, Field: "location",
			Element: 1, Times: -1}) // ASH
	}, says: []string{"ASH", "use a public network in one of PHX"}},
	"SizeMismatch": {drive: inTurn(published(), edited(annotated(contract.ServiceIPBlockSize, "/28"))),
		says: []string{"203.0.113.8/29", "/28", "delete the Service and create it again"}},
	"BlockInErrorState": {options: []option{broughtBlock("public", ofCluster())},
		drive: inTurn(served(inBlock(broughtID)), func(w *world) {
			w.portal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus, Block: broughtID, Status: "error unassigning"})
		}), says: []string{broughtID, "error unassigning", "portal"}},
	"AnnotationsRefused": {drive: served(annotated(contract.ServiceIPRetain, "perhaps")),
		says: []string{contract.ServiceIPRetain, "perhaps", `must be "true" or "false"`}},
	"AllocationMismatch": {drive: inTurn(published(), edited(inPool())),
		says: []string{"203.0.113.10", contract.ServiceIPAllocation, "delete the Service and create it again"}},
	"AddressConflict": {drive: inTurn(func(w *world) {
		w.service("other", sharing("front", 443))
		w.settle("other")
	}, served(sharing("front", 443))), says: []string{"Service shop/other has the address of", "both have port 443/TCP",
		"change that of one of them"}},
	"LedgerUnreadable": {drive: inTurn(published(inPool()), damageLedger),
		says: []string{"IPBlock " + v1beta1.SharedPrefix(v1beta1.DefaultNetwork), "status.cidr", "repair its status"}},
	"NetworkNotServed": {drive: served(annotated(contract.ServiceNetwork, "east")),
		says: []string{"east", contract.ServiceNetwork, "name one of default (", "create PublicNetwork"}},
}

// trouble are the reasons of BlockAssigned between the two.
var trouble = map[string]situation{
	"LookupFailed": {drive: inTurn(served(), failing("", "/ips/v1/*", 500)),
		says: []string{"list IP blocks", "500", "tries again"}},
	"ReleaseFailed": {drive: inTurn(published(), deleted, failing(http.MethodDelete, unassignPath, 500)),
		says: []string{"unassign IP block", networkID, "500", "tries again"}},
	"BlockInError": {drive: inTurn(served(), failsToAssign, func(w *world) {
		w.arm(pnapsim.Fault{Method: http.MethodDelete, Path: unassignPath, Times: -1, Action: pnapsim.FaultOutcome,
			Outcome: pnapsim.OutcomeError})
	}), says: []string{"after an error of the phoenixNAP API"}},
	"BlockRetagging": {drive: inTurn(published(), edited(annotated(contract.ServiceIPRetain, "true")), deleted),
		says: []string{"tags of the IP block"}},
	"AddressAnswers": {options: []option{configured(func(c *reconcile.Config) { c.Announcer = contract.AnnouncerAgent })},
		drive: func(w *world) {
			w.report("", "")
			w.service("web")
			w.settle("web")
			w.report(w.address("web"), contract.AddressAnswered)
			w.delete("web")
		}, says: []string{"until no machine answers"}},
}

// publication are the reasons of AddressPublished, but for those of the service controller.
var publication = map[string]situation{
	"BlockNotAssigned": {drive: served(), says: []string{"once its IP block is assigned"}},
	"NoNodeReady": {drive: assignedWithoutNode, says: []string{"a Node that may carry", "Node node-1 has the condition",
		"kubectl describe node node-1"}},
	"Published": {drive: served(), says: []string{"in the status of the Service"}},
}

// ofTheServiceController are the reasons of AddressPublished that package service sets, and tests.
var ofTheServiceController = []string{"Pending", "Unsupported"}

func failsToAssign(w *world) {
	w.arm(pnapsim.Fault{Method: http.MethodPost, Path: assignPath, Times: -1, Action: pnapsim.FaultOutcome,
		Outcome: pnapsim.OutcomeError})
}

// assignedWithoutNode loses the only Node once the block is bought.
func assignedWithoutNode(w *world) {
	served()(w)
	for len(w.blocks()) == 0 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	noNodeReady(w)
}

func noNodeReady(w *world) {
	if err := w.nodes.Replace([]any{w.node("node-1", vlanIs(corev1.ConditionFalse))}, ""); err != nil {
		w.t.Fatal(err)
	}
}

// memberOf gives a server an address of the public network by hand.
func memberOf(address string) func(*world) {
	return func(w *world) {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID, Network: networkID})
		w.clock.Advance(10 * time.Minute)
		w.portal(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: serverID, Network: networkID,
			IPs: []string{address}})
		w.clock.Advance(10 * time.Minute)
	}
}

// foreignID is the ID of the first of foreignBlocks.
const foreignID = "60473c2509268bc77fd06e00"

// foreignBlocks fill places of the public network.
func foreignBlocks(count int) []pnapsim.BlockSeed {
	var blocks []pnapsim.BlockSeed
	for i := range count {
		blocks = append(blocks, pnapsim.BlockSeed{ID: fmt.Sprintf("60473c2509268bc77fd06e%02d", i), Location: "ASH",
			CIDR: fmt.Sprintf("203.0.113.%d/29", 64+8*i), Network: "public"})
	}
	return blocks
}

// TestEveryDocumentedReasonIsReached drives the controller to each reason that the page of conditions lists. A reason
// without a situation fails, and so does one that the page does not list.
func TestEveryDocumentedReasonIsReached(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	driven := 0
	for _, table := range []struct {
		region, condition string
		situations        map[string]situation
		elsewhere         []string
	}{
		{"reasons-on-the-way", contract.ServiceConditionBlockAssigned, onTheWay, nil},
		{"reasons-of-refusals", contract.ServiceConditionBlockAssigned, refusals, nil},
		{"reasons-of-trouble", contract.ServiceConditionBlockAssigned, trouble, nil},
		{"reasons-of-publication", contract.ServiceConditionAddressPublished, publication, ofTheServiceController},
	} {
		want := documented(t, string(page), table.region)
		have := slices.Sorted(maps.Keys(table.situations))
		have = append(have, table.elsewhere...)
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s: there are situations for %q, and the page lists %q", table.region, have, want)
		}
		for reason, s := range table.situations {
			driven++
			t.Run(reason, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, s.options...)
				s.drive(w)
				w.reaches(table.condition, reason, s.says)
				if table.region == "reasons-of-refusals" {
					w.refusedByEvent(reason)
				}
			})
		}
	}
	t.Logf("figure documented_reasons_driven %d reasons", driven)
}

// documented are the reasons in one region of the page, in alphabetical order.
func documented(t *testing.T, page, region string) []string {
	t.Helper()
	_, rest, found := strings.Cut(page, "<!-- begin "+region+":")
	table, _, ended := strings.Cut(rest, "<!-- end "+region)
	if !found || !ended {
		t.Fatalf("the page has no region %s", region)
	}
	var reasons []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(table, -1) {
		reasons = append(reasons, row[1])
	}
	slices.Sort(reasons)
	return reasons
}

// reaches syncs the Service web until its condition has the reason.
func (w *world) reaches(kind, reason string, says []string) {
	w.t.Helper()
	var seen []string
	for end := w.clock.Now().Add(time.Hour); w.clock.Now().Before(end); {
		_, err := w.sync("web")
		service := w.get("web")
		if service == nil {
			break
		}
		if c := meta.FindStatusCondition(service.Status.Conditions, kind); c != nil {
			if seen = append(seen, c.Reason); c.Reason == reason {
				w.checkMessage(*c, says)
				return
			}
		}
		if err == nil {
			w.clock.Advance(time.Minute)
			continue
		}
		w.said = append(w.said, err.Error())
		w.clock.Advance(w.pauseAfter(err))
	}
	w.t.Errorf("%s was never %s, but %q; said %.600q", kind, reason, slices.Compact(seen), slices.Compact(w.said))
}

func (w *world) checkMessage(c metav1.Condition, says []string) {
	w.t.Helper()
	for _, part := range says {
		if !strings.Contains(c.Message, part) {
			w.t.Errorf("%s: the message lacks %q: %s", c.Reason, part, c.Message)
		}
	}
	if len(c.Message) > text.MessageLimit || len(w.sim.FindSecrets(c.Message)) > 0 || len(says) == 0 {
		w.t.Errorf("%s: the message has %d bytes, or a secret: %s", c.Reason, len(c.Message), c.Message)
	}
}

// refusedByEvent demands the event of a refusal.
func (w *world) refusedByEvent(reason string) {
	w.t.Helper()
	want := "IPBlockRefused"
	switch reason {
	case "BlockLost", "BlockRetagged", "AddressConflict":
		want = reason
	case "LedgerUnreadable":
		want = "RecordUnreadable"
	}
	if got := w.eventReasons(); !slices.Contains(got, want) {
		w.t.Errorf("%s: events %q, want %s", reason, got, want)
	}
}
