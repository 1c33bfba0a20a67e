package walk

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// rulesOfAddresses are those about who has which address.
var rulesOfAddresses = []rule{
	{name: "5 a block is not released when an address of it is given at that moment", bought: 1,
		live: givenWhileClosing},
	{name: "5 a block whose object is being deleted gives no address", bought: 2, live: objectIsBeingDeleted},
	{name: "6 no address is given before those of all Services are recorded again", bought: 1, live: recordsAreRebuilt},
	{name: "6 an address that the watch does not show is given to no other Service", bought: 1,
		live: publishedUnseen},
	{name: "8 a brought block stays assigned when it is not known who assigned it", live: unknownAssignment},
	{name: "8 a block of another cluster is refused", live: ofAnotherCluster},
	{name: "8 a retained block goes to the Service of its name and counts", bought: 2, live: retainedBlock},
}

func shared() map[string]string {
	return map[string]string{contract.ServiceIPAllocation: contract.AllocationShared}
}

var firstShared = v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1"

// givenWhileClosing: the last Service of a shared block leaves, and another process gives an address of the block to a
// Service that the watch does not show yet.
func givenWhileClosing(w *world) {
	began := time.Now()
	w.ordered("first", shared())
	w.served("first")
	used := w.only()
	var given netip.Addr
	w.once(func(request *http.Request) bool {
		leaving, found := w.service("first")
		return found && leaving.DeletionTimestamp != nil && to(http.MethodGet, objectPath(firstShared))(request)
	}, func() { given = w.give(used.id, "second") })
	w.remove("first")
	w.gone("first")
	if address := w.served("second"); address != given.String() || w.only().id != used.id {
		w.fail("Service second has %s, was given %s of %s", address, given, used)
	}
	for _, call := range w.callsSince(began) {
		if strings.HasPrefix(call, http.MethodDelete) {
			w.fail("the block was given up: %s", call)
		}
	}
}

// give has another process create a Service and give it an address of a block.
func (w *world) give(blockID, name string) netip.Addr {
	w.ordered(name, shared())
	service, _ := w.service(name)
	store := allocation.NewStore(w.ipBlocks, nil)
	ledger, err := store.Get(w.t.Context(), blockID)
	if err != nil {
		w.t.Error(err)
		return netip.Addr{}
	}
	ledger, grant, err := ledger.Take(plan.HolderOf(service), ipblock.Ask{Now: time.Now()})
	if err == nil {
		_, err = store.Save(w.t.Context(), ledger)
	}
	w.did("Service %s is given %s: %v", name, grant.Address, err)
	return grant.Address
}

// objectIsBeingDeleted: a person orders the release of a shared block while a Service has an address of it.
func objectIsBeingDeleted(w *world) {
	w.ordered("first", shared())
	address := w.served("first")
	w.did("the IPBlock is deleted: %v", w.ipBlocks.Delete(w.t.Context(), firstShared, metav1.DeleteOptions{}))
	w.ordered("second", shared())
	w.served("second")
	w.keeps("first", address)
	w.remove("first")
	w.gone("first")
	time.Sleep(time.Hour)
	w.only()
}

// recordsAreRebuilt: the definition is deleted and applied again just before Services come that share a block.
func recordsAreRebuilt(w *world) {
	w.ordered("first", shared())
	address := w.served("first")
	w.loseDefinition(time.Minute)
	w.afterDrift()
	w.loseStatus(firstOfBlock(w))
	for i := range 3 {
		w.ordered(fmt.Sprint("later-", i), shared())
	}
	for i := range 3 {
		w.served(fmt.Sprint("later-", i))
	}
	w.keeps("first", address)
}

// afterDrift waits until the controller has just compared all Services with the account, which it does once a minute.
func (w *world) afterDrift() {
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
}

// firstOfBlock is the name of the object of the only block.
func firstOfBlock(w *world) string {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, object := range list.Items {
		if object.Spec.BlockID == w.only().id {
			return object.Name
		}
	}
	w.t.Fatal("no object names the block")
	return ""
}

// publishedUnseen: who has which address is lost while the watch does not show yet that a Service has the one which
// another asks for.
func publishedUnseen(w *world) {
	w.ordered("oldest", shared())
	taken := w.served("oldest")
	wanted := netip.MustParseAddr(taken).Next().String()
	asks := func(address string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerIP = address }
	}
	w.ordered("rival", shared())
	w.edit("rival", "asks for the address of another", asks(taken))
	time.Sleep(5 * time.Minute)
	w.refused("rival")
	w.afterDrift()
	const moment = 100 * time.Millisecond
	time.Sleep(3 * moment) // when no sync is due otherwise
	w.place(namespace, "first", func(s *corev1.Service) { s.Annotations = shared(); asks(wanted)(s) })
	time.Sleep(lateBy - moment)
	w.edit("rival", "asks for that of the first", asks(wanted))
	time.Sleep(lateBy + moment/2) // the watch shows this, and not yet what the controller wrote
	w.keeps("first", wanted)
	w.refused("rival")
	w.setLags(kubefake.Lag{Until: time.Now().Add(time.Hour)}, []string{"services"})
	w.loseStatus(firstShared)
	time.Sleep(15 * time.Minute) // longer than the quarantine of what is made again
	w.lagBehind()
	time.Sleep(5 * time.Minute)
	w.keeps("oldest", taken)
	w.keeps("first", wanted)
	w.refused("rival")
}

// unknownAssignment: the record that the controller assigned a brought block is lost before its last Service leaves.
func unknownAssignment(w *world) {
	w.ordered("web", map[string]string{contract.ServiceIPBlock: broughtObject})
	address := w.served("web")
	w.loseStatus(broughtObject)
	time.Sleep(10 * time.Minute)
	w.keeps("web", address)
	w.remove("web")
	w.gone("web")
	time.Sleep(time.Hour)
	if !w.isServed(address) {
		w.fail("the brought block was unassigned: %v", w.blocks())
	}
}

// ofAnotherCluster: a person gives Services a block whose tags name another cluster.
func ofAnotherCluster(w *world) {
	for _, b := range w.blocks() {
		if b.tags[contract.TagCluster] != otherCluster {
			continue
		}
		_, err := w.ipBlocks.Create(w.t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
			Spec: v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared, BlockID: b.id}},
			metav1.CreateOptions{})
		w.did("an IPBlock names %s: %v", b, err)
	}
	w.ordered("web", map[string]string{contract.ServiceIPBlock: "foreign"})
	time.Sleep(time.Hour)
	w.refused("web")
	for _, b := range w.blocks() {
		if b.tags[contract.TagCluster] == otherCluster && b.status != "unassigned" {
			w.fail("a block of another cluster is %s", b)
		}
	}
}

// retainedBlock: a block that outlives its Service is not for another one, there is one in a namespace, and it counts
// among those that may be bought.
func retainedBlock(w *world) {
	retain := map[string]string{contract.ServiceIPRetain: contract.TagTrue}
	w.maxBlocks = 2
	w.process.kill()
	w.look()
	w.ordered("web", retain)
	address := w.served("web")
	w.remove("web")
	w.gone("web")
	w.ordered("another", retain)
	time.Sleep(10 * time.Minute)
	w.refused("another")
	w.ordered("other", nil)
	if other := w.served("other"); other == address {
		w.fail("Service other has the retained %s", address)
	}
	w.ordered("third", nil)
	time.Sleep(10 * time.Minute)
	w.refused("third")
	w.ordered("web", retain)
	if again := w.served("web"); again != address {
		w.fail("Service web has %s instead of %s", again, address)
	}
}
