package walk

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// rulesOfSpending are those about what is bought and given up.
var rulesOfSpending = []rule{
	{name: "1 nothing is bought for a Service that only the watch shows", bought: 1, live: onlyTheWatchShows},
	{name: "1 nothing is released of a Service whose change back the watch does not show", bought: 1,
		live: changedBack},
	{name: "1 the block of a Service that the watch does not show is no orphan", live: theWatchDoesNotShow},
	{name: "1 what a Service has that only a list lacks is not released at once", bought: 1, live: aListLacksIt},
	{name: "3 an object with a block buys nothing though status and tags are lost", bought: 1, live: allElseIsLost},
	{name: "3 a block that is gone is replaced only when the Service asks for it", bought: 2, live: blockIsGone},
	{name: "3 nothing is bought when the definition is lost", bought: 1, live: definitionIsLost},
	{name: "3 a block is not released while another object names it", bought: 1, live: namedTwice},
	{name: "3 an orphan is not collected while another object names it", bought: 1, live: orphanIsNamed},
}

// onlyTheWatchShows: four Services that wait for a Node are deleted, created again or need no address any more, and the
// watch shows none of it when the Node is ready. The one that was created again gets its block once the watch shows it.
func onlyTheWatchShows(w *world) {
	w.everyNode("excluded", exclude)
	time.Sleep(time.Minute)
	names := []string{"vanished", "retyped", "replaced", "leaving"}
	for _, name := range names {
		w.ordered(name, nil)
	}
	time.Sleep(2 * time.Minute)
	for _, name := range names {
		if service, _ := w.service(name); len(service.Finalizers) == 0 {
			w.fail("the controller has not seen Service %s", name)
		}
	}
	before, _ := w.service("replaced")
	w.setLags(kubefake.Lag{Until: time.Now().Add(time.Hour)}, []string{"services"})
	w.vanish("vanished")
	w.edit("retyped", "no load balancer", withType(corev1.ServiceTypeClusterIP))
	w.vanish("replaced")
	w.ordered("replaced", nil)
	w.edit("leaving", "held", func(s *corev1.Service) { s.Finalizers = append(s.Finalizers, "example.com/hold") })
	w.remove("leaving")
	w.everyNode("included", include)
	time.Sleep(20 * time.Minute)
	w.bought(0)
	w.lagBehind()
	w.served("replaced")
	if _, err := w.ipBlocks.Get(w.t.Context(), objectOf(before), metav1.GetOptions{}); err == nil {
		w.fail("a block is recorded for a Service that is gone")
	}
}

// withType makes a Service one of another type.
func withType(kind corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type = kind }
}

// changedBack: when the watch shows that a Service needs no address any more, it needs one again.
func changedBack(w *world) {
	w.ordered("web", nil)
	address := w.served("web")
	time.Sleep(time.Minute)
	w.edit("web", "no load balancer", withType(corev1.ServiceTypeClusterIP))
	time.Sleep(lateBy / 2)
	w.edit("web", "load balancer", withType(corev1.ServiceTypeLoadBalancer))
	for range 10 * 60 {
		time.Sleep(time.Second)
		w.keeps("web", address)
	}
}

// theWatchDoesNotShow: a block is in use by a Service of which the watch shows nothing for longer than an orphan stays.
func theWatchDoesNotShow(w *world) {
	w.setLags(kubefake.Lag{Until: time.Now().Add(3 * orphanGrace)}, []string{"services"})
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: networkID, Tags: map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: w.uid,
		contract.TagService: contract.ServiceTag(namespace, "web"),
	}})
	w.ordered("web", nil)
	used := w.only()
	time.Sleep(3*orphanGrace - time.Second)
	if w.only().id != used.id || w.events.reports(used.id) {
		w.fail("%s counts as an orphan", used)
	}
	w.lagBehind()
	w.served("web")
}

// aListLacksIt: an API server that was restored does not know a Service, and its watch ended meanwhile. That the
// Service was deleted is nowhere said, so its block is an orphan like others.
func aListLacksIt(w *world) {
	w.ordered("young", nil)
	w.served("young")
	used := w.only()
	w.setLags(kubefake.Lag{Until: time.Now().Add(time.Hour)}, []string{"services"})
	w.vanish("young")
	w.watchExpires()
	w.lagBehind()
	time.Sleep(orphanGrace - time.Minute)
	if left := w.ours(); len(left) != 1 || left[0].id != used.id || left[0].status != "assigned" {
		w.fail("of %s is left: %v", used, left)
	}
	time.Sleep(time.Hour)
	if left := w.ours(); len(left) > 0 {
		w.fail("blocks are left: %v", left)
	}
}

// allElseIsLost: a restore brings a Service and its IPBlock back without their status, and a person has removed the
// tags of the block. Once these are there again, the Service has its address again.
func allElseIsLost(w *world) {
	w.ordered("web", nil)
	address := w.served("web")
	time.Sleep(time.Hour)
	used := w.only()
	service, _ := w.service("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: used.id})
	w.loseStatus(objectOf(service))
	w.edit("web", "restored as its author wrote it", func(s *corev1.Service) {
		s.Annotations = nil
		s.Spec.LoadBalancerIP = ""
	})
	service, _ = w.service("web")
	service.Status = corev1.ServiceStatus{}
	if _, err := w.kube.CoreV1().Services(namespace).UpdateStatus(w.t.Context(), service,
		metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(2 * time.Hour)
	w.bought(1)
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: used.id, Tags: used.tags})
	if again := w.served("web"); again != address {
		w.fail("Service web has %s instead of %s", again, address)
	}
}

// loseStatus brings an IPBlock back as a restore without status does.
func (w *world) loseStatus(name string) {
	w.t.Helper()
	if err := kubefake.EditStatus(w.t.Context(), w.ipBlocks, name, func(s *v1beta1.IPBlockStatus) {
		*s = v1beta1.IPBlockStatus{}
	}); err != nil {
		w.t.Fatal(err)
	}
	w.did("IPBlock %s has lost its status", name)
}

// blockIsGone: a person deletes a block in the portal.
func blockIsGone(w *world) {
	w.ordered("web", nil)
	w.served("web")
	time.Sleep(time.Hour)
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.only().id})
	time.Sleep(2 * time.Hour)
	w.bought(1)
	w.edit("web", "asks for another address", func(s *corev1.Service) {
		s.Annotations[contract.ServiceIPReplace] = "true"
	})
	w.served("web")
}

// definitionIsLost: the objects are lost with their definition, and what the account proves is recorded again.
func definitionIsLost(w *world) {
	w.ordered("web", nil)
	address := w.served("web")
	w.loseDefinition(20 * time.Minute)
	w.keeps("web", address)
	service, _ := w.service("web")
	if object := w.object(service); object.Spec.BlockID != w.only().id {
		w.fail("the object names block %q, want %s", object.Spec.BlockID, w.only().id)
	}
}

// loseDefinition deletes the definition of IPBlock with all objects, and applies it again after a while.
func (w *world) loseDefinition(length time.Duration) {
	w.t.Helper()
	gvr := v1beta1.GroupVersion.WithResource("ipblocks")
	if err := w.store.Undefine(gvr); err != nil {
		w.t.Fatal(err)
	}
	w.store.AllowUndefine(gvr)
	w.did("the definition of IPBlock is deleted")
	time.Sleep(length)
	if !w.store.Define(gvr) {
		w.t.Fatal("the definition is still being deleted")
	}
	w.did("the definition of IPBlock is applied")
	time.Sleep(length)
}

// namedTwice: a person takes the block of a Service up with an IPBlock, deletes the Service, and later the IPBlock.
func namedTwice(w *world) {
	w.ordered("web", nil)
	w.served("web")
	giveUp := w.takeUp(w.only())
	w.remove("web")
	giveUp()
	w.gone("web")
	if left := w.ours(); len(left) > 0 {
		w.fail("blocks are left: %v", left)
	}
}

// orphanIsNamed is namedTwice for a Service that is gone before the controller sees it go.
func orphanIsNamed(w *world) {
	w.ordered("web", nil)
	w.served("web")
	giveUp := w.takeUp(w.only())
	w.process.kill()
	w.vanish("web")
	giveUp()
	time.Sleep(time.Hour)
	if left := w.ours(); len(left) > 0 {
		w.fail("blocks are left: %v", left)
	}
}

// takeUp has a person create an IPBlock for a block, which stays then. The IPBlock is deleted by the function that is
// returned, after an hour in which the block must not be released.
func (w *world) takeUp(used block) (giveUp func()) {
	w.t.Helper()
	const name = "taken-up"
	_, err := w.ipBlocks.Create(w.t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared,
			BlockID: used.id}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.look() // a process that was killed has a successor
		time.Sleep(time.Hour)
		if w.only().id != used.id {
			w.fail("%s is released", used)
		}
		w.did("IPBlock %s is deleted: %v", name, w.ipBlocks.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	}
}
