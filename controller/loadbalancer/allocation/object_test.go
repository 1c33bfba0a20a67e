package allocation_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// service is the Service for whose block the tests have an object.
var service = ipblock.Holder{Namespace: "shop", Name: "web", UID: "uid-1"}

// objects are the IPBlocks on an API server.
type objects struct {
	*client.IPBlocks
	// reports counts what was reported, and allocated is true once an object was deleted that had an address.
	reports   int
	allocated bool
	// meddle is done once, before the next update of an object.
	meddle func()
}

func newObjects() *objects { return &objects{IPBlocks: kubefake.NewStore().IPBlocks()} }

func (o *objects) Delete(ctx context.Context, name string, how metav1.DeleteOptions) error {
	if object, err := o.Get(ctx, name, metav1.GetOptions{}); err == nil && object.Status.Allocations != nil {
		o.allocated = o.allocated || len(*object.Status.Allocations) > 0
	}
	return o.IPBlocks.Delete(ctx, name, how)
}

func (o *objects) Update(ctx context.Context, object *v1beta1.IPBlock, how metav1.UpdateOptions) (*v1beta1.IPBlock,
	error) {
	if meddle := o.meddle; meddle != nil {
		o.meddle = nil
		meddle()
	}
	return o.IPBlocks.Update(ctx, object, how)
}

// records are what is stored.
func (o *objects) records() ipblock.Records {
	listing, err := allocation.NewStore(o.IPBlocks, nil).List(context.Background())
	if err != nil {
		panic(err)
	}
	return listing.Records
}

func (o *objects) purchase() *ipblock.Purchase { return o.records().Of(service) }

func (o *objects) record() *allocation.Object {
	return allocation.ForService(o, v1beta1.DefaultNetwork, service, o.records())
}

// overwrite records an intent of someone else, and touch changes what is recorded otherwise.
func (o *objects) overwrite() {
	if _, err := o.record().Begin(context.Background(), noon, 28); err != nil {
		panic(err)
	}
}

func (o *objects) touch() {
	object, err := o.Get(context.Background(), v1beta1.ServicePrefix+service.UID, metav1.GetOptions{})
	if err == nil {
		object.Labels = map[string]string{"touched": "true"}
		_, err = o.Update(context.Background(), object, metav1.UpdateOptions{})
	}
	if err != nil {
		panic(err)
	}
}

const (
	blockOne = "0123456789abcdef01234567"
	blockTwo = "fedcba9876543210fedcba98"
)

func (o *objects) get(t *testing.T, name string) *v1beta1.IPBlock {
	t.Helper()
	object, err := o.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestObjectsOfPurchases: each owner has objects of a name and a specification of its own.
func TestObjectsOfPurchases(t *testing.T) {
	o := newObjects()
	makers := []func() *allocation.Object{
		o.record,
		func() *allocation.Object { return allocation.ForShared(o, v1beta1.DefaultNetwork, o.records()) },
		func() *allocation.Object { return allocation.ForShared(o, v1beta1.DefaultNetwork, o.records()) },
		func() *allocation.Object { return allocation.ForNodes(o, v1beta1.DefaultNetwork, o.records()) },
	}
	ids := map[string]string{}
	for i, make := range makers {
		record := make()
		intent, err := record.Begin(t.Context(), noon.Add(time.Duration(i)*time.Hour), 28)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("%024x", i)
		if err := record.Bought(t.Context(), intent, id); err != nil {
			t.Fatal(err)
		}
		ids[intent.Nonce] = id
	}
	for i, want := range []struct {
		name    string
		purpose v1beta1.Purpose
	}{
		{"svc-uid-1", v1beta1.PurposeService}, {"default-shared-1", v1beta1.PurposeShared},
		{"default-shared-2", v1beta1.PurposeShared}, {"default-nodes-1", v1beta1.PurposeNodes},
	} {
		object := o.get(t, want.name)
		spec := object.Spec
		if spec.Purpose != want.purpose || spec.Source != v1beta1.SourceBought || spec.Size != "/28" ||
			spec.BlockID != fmt.Sprintf("%024x", i) || (spec.ServiceRef != nil) != (i == 0) {
			t.Errorf("%s: %+v", want.name, spec)
		}
	}
	if ref := o.get(t, "svc-uid-1").Spec.ServiceRef; ref.Namespace != "shop" || ref.Name != "web" ||
		ref.UID != "uid-1" {
		t.Errorf("the Service is %+v", ref)
	}
	if len(ids) != len(makers) {
		t.Errorf("two purchases have one nonce: %v", ids)
	}
	shared, found := o.records().Last(false)
	if !found || shared.Name != "default-shared-2" {
		t.Errorf("the last for the pool is %+v", shared)
	}
	if nodes, found := o.records().Last(true); !found || nodes.BlockID != ids[nodes.Nonce] || !nodes.Nodes {
		t.Errorf("the last for the nodes is %+v", nodes)
	}
}

// TestTheNextAttempt: a purchase without an answer is tried again in the same object, with another nonce; the block of
// one that was answered is never taken for another.
func TestTheNextAttempt(t *testing.T) {
	o := newObjects()
	begin := func(size ipblock.Size) ipblock.Purchase {
		t.Helper()
		p, err := o.record().Begin(t.Context(), noon, size)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := begin(29)
	second := begin(29)
	uid := o.get(t, "svc-uid-1").UID
	if first.Nonce != string(uid)+"-1" || second.Nonce != string(uid)+"-2" {
		t.Errorf("the nonces are %s and %s of %s", first.Nonce, second.Nonce, uid)
	}
	third := begin(28) // the size of an object cannot be changed
	if object := o.get(t, "svc-uid-1"); object.UID == uid || object.Spec.Size != "/28" ||
		third.Nonce != string(object.UID)+"-1" {
		t.Errorf("%s of %s, %+v", third.Nonce, object.UID, object.Spec)
	}
	if err := o.record().Answer(t.Context(), blockOne); err != nil {
		t.Fatal(err)
	}
	if p := o.purchase(); p.BlockID != blockOne || p.Nonce != third.Nonce {
		t.Errorf("recorded is %+v", p)
	}
	fourth := begin(28)
	if p := o.purchase(); fourth.Nonce == third.Nonce || p.BlockID != "" || p.Nonce != fourth.Nonce {
		t.Errorf("recorded is %+v after %s", p, third.Nonce)
	}
}

// TestAnswers: which block it is can be recorded with or without a purchase before, and in the place of another one.
func TestAnswers(t *testing.T) {
	o := newObjects()
	for _, id := range []string{blockOne, blockTwo} {
		if err := o.record().Answer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if p := o.purchase(); p == nil || p.BlockID != id || p.Nonce != "" || !p.Time.IsZero() {
			t.Errorf("recorded is %+v", p)
		}
	}
	old := o.record()
	o.touch()
	if err := old.Forget(t.Context()); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("an old version was forgotten: %v", err)
	}
	if err := old.Answer(t.Context(), blockOne); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("an old version was answered: %v", err)
	}
	if err := o.record().Forget(t.Context()); err != nil || o.purchase() != nil {
		t.Errorf("%v; recorded is %+v", err, o.purchase())
	}
	if err := o.record().Forget(t.Context()); err != nil {
		t.Error("what is not there cannot be forgotten:", err)
	}
}

// TestAnswersOfAnOldVersion: what was decided before someone else began to buy is not recorded.
func TestAnswersOfAnOldVersion(t *testing.T) {
	o := newObjects()
	none := o.record()
	o.overwrite()
	pending := o.record()
	o.touch()
	for name, old := range map[string]*allocation.Object{"none": none, "pending": pending} {
		if err := old.Answer(t.Context(), blockOne); !errors.Is(err, allocation.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := old.Begin(t.Context(), noon, 28); !errors.Is(err, allocation.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOneOfTwoBuyersRecords: of two that decided on the same version, one may buy; also on the first time, when the
// object does not exist.
func TestOneOfTwoBuyersRecords(t *testing.T) {
	o := newObjects()
	for round := range 4 {
		known := o.records()
		nodes := func() *allocation.Object { return allocation.ForNodes(o.IPBlocks, v1beta1.DefaultNetwork, known) }
		records := []*allocation.Object{nodes(), nodes()}
		results := make([]error, len(records))
		var both sync.WaitGroup
		for i, r := range records {
			both.Go(func() { _, results[i] = r.Begin(context.Background(), noon, 28) })
		}
		both.Wait()
		winner := results[0]
		loser := results[1]
		if winner != nil {
			winner, loser = loser, winner
		}
		if winner != nil || !errors.Is(loser, allocation.ErrConflict) {
			t.Errorf("round %d: %v", round, results)
		}
	}
}

// TestObjectsThatRecordNothing: what the controller has not named, or not bought, is no purchase.
func TestObjectsThatRecordNothing(t *testing.T) {
	for name, object := range map[string]*v1beta1.IPBlock{
		"a name of a person": {ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1beta1.IPBlockSpec{
			Source: v1beta1.SourceBought, BlockID: blockOne}},
		"a brought block": {ObjectMeta: metav1.ObjectMeta{Name: "block-" + blockOne}, Spec: v1beta1.IPBlockSpec{
			Source: v1beta1.SourceBrought, BlockID: blockOne}},
	} {
		if r, recorded := allocation.RecordOf(object); recorded {
			t.Errorf("%s: %+v", name, r)
		}
	}
	restored := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "svc-uid-1"}, Spec: v1beta1.IPBlockSpec{
		Purpose: v1beta1.PurposeService, BlockID: blockOne, ServiceRef: &v1beta1.ServiceReference{Namespace: "shop",
			Name: "web"}}}
	if r, recorded := allocation.RecordOf(restored); !recorded || r.Service != service || r.Nonce != "" {
		t.Errorf("without a UID: %+v", r)
	}
}

// TestRemovalTakesTheAddressOut: a policy refuses to delete an object with an allocated address.
func TestRemovalTakesTheAddressOut(t *testing.T) {
	o := newObjects()
	reported(t, o, ipblock.Report{CIDR: netip.MustParsePrefix("203.0.113.8/29"),
		Address: netip.MustParseAddr("203.0.113.10")})
	if err := o.record().Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.allocated || o.purchase() != nil {
		t.Errorf("it was deleted with an address: %t; left is %+v", o.allocated, o.purchase())
	}
}

// reported records a block for the Service and shows a report of it.
func reported(t *testing.T, o *objects, report ipblock.Report) *v1beta1.IPBlock {
	t.Helper()
	if o.purchase() == nil {
		if err := o.record().Answer(t.Context(), blockOne); err != nil {
			t.Fatal(err)
		}
	}
	o.reports++
	if err := o.record().Report(t.Context(), report, noon.Add(time.Duration(o.reports)*time.Hour)); err != nil {
		t.Fatal(err)
	}
	return o.get(t, "svc-uid-1")
}

// TestReports: what is reported is shown, and read back as it was reported.
func TestReports(t *testing.T) {
	o := newObjects()
	assigning := ipblock.Report{CIDR: netip.MustParsePrefix("203.0.113.8/29"), Location: "ASH",
		Assigned: ipblock.Condition{Reason: "BlockAssigning", Message: "waiting"}}
	assigned := assigning
	assigned.Assigned = ipblock.Condition{True: true, Reason: "BlockAssigned", Message: "assigned"}
	assigned.Ready = ipblock.Condition{True: true, Reason: "Published", Message: "published"}
	assigned.Address = netip.MustParseAddr("203.0.113.10")
	moved := assigned
	moved.Address = netip.MustParseAddr("203.0.113.11")
	left := moved
	left.Address = netip.Addr{}
	left.Ready = ipblock.Condition{}
	for _, step := range []struct {
		report ipblock.Report
		used   string
		since  int // the number of the report since when the address is shown
	}{{assigning, "0/5", 0}, {assigned, "1/5", 2}, {assigned, "1/5", 2}, {moved, "1/5", 4}, {left, "0/5", 0}} {
		object := reported(t, o, step.report)
		if shown, _ := o.records().Own(service); shown.Report != step.report || shown.Allocated != (step.since > 0) {
			t.Errorf("it shows %+v, want %+v", shown.Report, step.report)
		}
		status := object.Status
		if status.Used != step.used || status.Gateway != "203.0.113.9" {
			t.Errorf("used %s, gateway %s", status.Used, status.Gateway)
		}
		if step.since > 0 {
			one := (*status.Allocations)[0]
			if want := noon.Add(time.Duration(step.since) * time.Hour); !one.Since.Time.Equal(want) ||
				string(one.Services[0].UID) != service.UID {
				t.Errorf("allocated since %s, want %s: %+v", one.Since, want, one)
			}
		}
	}
	old := o.record()
	if err := o.record().Answer(t.Context(), blockTwo); err != nil {
		t.Fatal(err)
	}
	if err := old.Report(t.Context(), assigned, noon); err != nil {
		t.Fatal(err)
	}
	if status := o.get(t, "svc-uid-1").Status; status.CIDR != "" {
		t.Errorf("another block is shown as %+v", status)
	}
}

// TestAnAnswerIsRecordedThoughTheObjectChanges between the look at it and the write.
func TestAnAnswerIsRecordedThoughTheObjectChanges(t *testing.T) {
	o := newObjects()
	record := o.record()
	intent, err := record.Begin(t.Context(), noon, 28)
	if err != nil {
		t.Fatal(err)
	}
	o.meddle = o.touch
	if err := record.Bought(t.Context(), intent, blockOne); err != nil || o.purchase().BlockID != blockOne {
		t.Errorf("%v; recorded is %+v", err, o.purchase())
	}
}

// TestAnUnansweredPurchaseIsTriedAgainInItsObject: one for the pool or the nodes does not leave another object behind.
func TestAnUnansweredPurchaseIsTriedAgainInItsObject(t *testing.T) {
	o := newObjects()
	for range 2 {
		record := allocation.ForNodes(o, v1beta1.DefaultNetwork, o.records())
		if _, err := record.Begin(t.Context(), noon, 28); err != nil {
			t.Fatal(err)
		}
	}
	if all := o.records(); len(all) != 1 || all[0].Name != v1beta1.NodesPrefix(v1beta1.DefaultNetwork)+"1" {
		t.Errorf("recorded is %+v", all)
	}
}
